use serde::{Deserialize, Serialize};

use crate::TextError;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Local date and time of day, as a clock on the wall shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct DateTime(Fields);

/// The JSON form: `{"year": 2026, "month": 1, "day": 31, "hour": 0, "minute": 0, "second": 0}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    year: i32,
    month: i32,
    day: i32,
    #[serde(default)]
    hour: i32,
    #[serde(default)]
    minute: i32,
    #[serde(default)]
    second: i32,
}

impl DateTime {
    /// Year 1 to 9999, month 1 to 12, day of the month, hour 0 to 23, minute and second 0 to 59.
    ///
    /// # Errors
    ///
    /// [`TextError::DateTime`] names the field that is out of range.
    pub fn new(
        year: i32,
        month: i32,
        day: i32,
        hour: i32,
        minute: i32,
        second: i32,
    ) -> Result<DateTime, TextError> {
        DateTime::try_from(Fields {
            year,
            month,
            day,
            hour,
            minute,
            second,
        })
    }

    /// Python's `strftime` in the C locale, for the directives that name a date or a time of day.
    /// `Err` is the directive that is not one of them.
    pub(crate) fn format(self, format: &str) -> Result<String, String> {
        use std::fmt::Write;
        let Fields {
            year,
            month,
            day,
            hour,
            minute,
            second,
        } = self.0;
        let (month_name, weekday) = (MONTHS[month as usize - 1], self.weekday());
        let weekday_name = WEEKDAYS[weekday];
        let hour12 = (hour + 11) % 12 + 1;
        let mut out = String::new();
        let mut rest = format;
        while let Some((text, directive)) = rest.split_once('%') {
            out += text;
            // "-" before the letter leaves out the padding.
            let letter_at = usize::from(directive.starts_with('-'));
            let letter = directive[letter_at..].chars().next().unwrap_or('%');
            let len = letter_at + letter.len_utf8();
            let width = if letter_at == 0 { 2 } else { 0 };
            match (letter, letter_at) {
                ('d', _) => write!(out, "{day:0width$}"),
                ('m', _) => write!(out, "{month:0width$}"),
                ('y', _) => write!(out, "{:0width$}", year % 100),
                ('H', _) => write!(out, "{hour:0width$}"),
                ('I', _) => write!(out, "{hour12:0width$}"),
                ('M', _) => write!(out, "{minute:0width$}"),
                ('S', _) => write!(out, "{second:0width$}"),
                ('j', 0) => write!(out, "{:03}", self.day_of_year()),
                ('j', _) => write!(out, "{}", self.day_of_year()),
                ('Y', 0) => write!(out, "{year}"),
                ('B', 0) => write!(out, "{month_name}"),
                ('b' | 'h', 0) => write!(out, "{}", &month_name[..3]),
                ('A', 0) => write!(out, "{weekday_name}"),
                ('a', 0) => write!(out, "{}", &weekday_name[..3]),
                ('w', 0) => write!(out, "{weekday}"),
                ('p', 0) => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
                ('e', 0) => write!(out, "{day:2}"),
                ('F', 0) => write!(out, "{year}-{month:02}-{day:02}"),
                ('D', 0) => write!(out, "{month:02}/{day:02}/{:02}", year % 100),
                ('T', 0) => write!(out, "{hour:02}:{minute:02}:{second:02}"),
                ('R', 0) => write!(out, "{hour:02}:{minute:02}"),
                ('%', 0) if !directive.is_empty() => write!(out, "%"),
                _ => return Err(format!("%{}", &directive[..len.min(directive.len())])),
            }
            .expect("writing to a String cannot fail");
            rest = &directive[len..];
        }
        Ok(out + rest)
    }

    /// From 1.
    fn day_of_year(self) -> i32 {
        (1..self.0.month)
            .map(|month| days_in_month(self.0.year, month))
            .sum::<i32>()
            + self.0.day
    }

    /// From Sunday, 0.
    fn weekday(self) -> usize {
        let before = self.0.year - 1;
        // 1 January of year 1 is a Monday in the proleptic Gregorian calendar.
        let days = before * 365 + before / 4 - before / 100 + before / 400 + self.day_of_year();
        (days % 7) as usize
    }
}

impl TryFrom<Fields> for DateTime {
    type Error = TextError;

    fn try_from(fields: Fields) -> Result<DateTime, TextError> {
        let check = |field, value: i32, first: i32, last: i32, expected| {
            if (first..=last).contains(&value) {
                Ok(())
            } else {
                Err(TextError::DateTime {
                    field,
                    value,
                    expected,
                })
            }
        };
        check("year", fields.year, 1, 9999, "1 to 9999")?;
        check("month", fields.month, 1, 12, "1 to 12")?;
        let last = days_in_month(fields.year, fields.month);
        check("day", fields.day, 1, last, "a day of that month")?;
        check("hour", fields.hour, 0, 23, "0 to 23")?;
        check("minute", fields.minute, 0, 59, "0 to 59")?;
        check("second", fields.second, 0, 59, "0 to 59")?;
        Ok(DateTime(fields))
    }
}

impl From<DateTime> for Fields {
    fn from(date: DateTime) -> Fields {
        date.0
    }
}

fn days_in_month(year: i32, month: i32) -> i32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}
