use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::config::{ChatTemplates, TokenizerConfig};
use crate::json::{python_float, tojson};
use crate::text::check_size;
use crate::{Chat, DateTime, TextError, TextFile};

/// Work that one rendering may take: an instruction, or 64 bytes of text, is one step.
///
/// Templates come from the network. This lets a 128k-token chat through, and bounds a hostile
/// template to about a second and 256 MB.
const MAX_STEPS: u64 = 4_000_000;

const DEFAULT: &str = "chat template";
const TOOL_USE: &str = "chat template tool_use";

/// Variables that the chat sets, which its own [`Chat::variables`] cannot.
const RESERVED: [&str; 4] = ["messages", "tools", "add_generation_prompt", "strftime_now"];

/// A model's chat template in the environment that transformers gives it.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    /// `bos_token` and its like.
    token_variables: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// `source` is `chat_template.jinja`; without it the configuration's template is used.
    pub(crate) fn new(
        source: Option<&str>,
        config: &TokenizerConfig,
    ) -> Result<Option<ChatTemplate>, TextError> {
        let mut tool_use = None;
        let default = match (source, &config.chat_template) {
            (Some(source), _) => source,
            (None, Some(ChatTemplates::One(source))) => source,
            (None, Some(ChatTemplates::Named(named))) => {
                let find = |name| named.iter().find(|template| template.name == name);
                tool_use = find("tool_use").map(|template| &template.template[..]);
                match find("default") {
                    Some(default) => &default.template,
                    None => {
                        let names = named.iter().map(|template| template.name.clone()).collect();
                        return Err(TextError::NoDefaultTemplate { names });
                    }
                }
            }
            (None, None) => return Ok(None),
        };

        let mut environment = environment();
        for (name, source) in [(DEFAULT, Some(default)), (TOOL_USE, tool_use)] {
            let Some(source) = source else { continue };
            // Also of a template inside another file: the parser's stack grows with long chains of operators.
            check_size(TextFile::ChatTemplate, Some(source))?;
            environment
                .add_template_owned(name, replace_generation_tags(&unix_lines(source)))
                .map_err(|source| TextError::TemplateSyntax {
                    line: line(&source),
                    source,
                })?;
        }
        Ok(Some(ChatTemplate {
            environment,
            token_variables: config.token_variables(),
        }))
    }

    pub(crate) fn render(&self, chat: &Chat) -> Result<String, TextError> {
        if let Some(name) = chat
            .variables
            .keys()
            .find(|name| RESERVED.contains(&name.as_str()))
        {
            return Err(TextError::ReservedVariable { name: name.clone() });
        }
        let tokens = self
            .token_variables
            .iter()
            .map(|(name, text)| (*name, Value::from(&text[..])));
        let variables = chat
            .variables
            .iter()
            .map(|(name, value)| (&name[..], Value::from(Serde(value))));
        let own = [
            ("messages", Value::from(Serde(&chat.messages))),
            ("tools", Value::from(Serde(&chat.tools))),
            (
                "add_generation_prompt",
                Value::from(chat.add_generation_prompt),
            ),
        ];
        let clock = chat.now.map(|now| ("strftime_now", strftime_now(now)));
        // A later variable replaces an earlier one of the same name.
        let context = Value::from_pairs(tokens.chain(variables).chain(own).chain(clock));

        let name = match self.environment.get_template(TOOL_USE) {
            Ok(_) if chat.tools.is_some() => TOOL_USE,
            _ => DEFAULT,
        };
        self.environment
            .get_template(name)
            .and_then(|template| template.render(context))
            .map_err(render_error)
    }
}

/// Jinja as transformers sets it up, in the engine's terms.
///
/// What the engine does in another way than Python, and templates were seen to rely on, is
/// replaced here. The rest fails loudly: a filter, method or global that only Python has is an
/// error that names it.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("the default delimiters"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.set_fuel(Some(MAX_STEPS));
    environment.set_formatter(|out, state, value| match python_text(value) {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => escape_formatter(out, state, value),
    });
    environment.add_filter("string", |value: &Value| {
        python_text(value).map_or_else(|| Value::from(value.to_string()), Value::from)
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("default", default_filter);
    environment.add_filter("d", default_filter);
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// The text of values that Python prints in its own way: floats.
fn python_text(value: &Value) -> Option<String> {
    if !value.is_number() || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok().map(python_float)
}

/// The engine's own does not know the names of the arguments.
fn default_filter(
    value: &Value,
    default_value: Option<Value>,
    boolean: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let default_value = match default_value {
        Some(default_value) => default_value,
        None => named
            .get::<Option<Value>>("default_value")?
            .unwrap_or_else(|| "".into()),
    };
    let boolean = match boolean {
        Some(boolean) => boolean,
        None => named.get::<Option<bool>>("boolean")?.unwrap_or(false),
    };
    named.assert_all_used()?;
    let replace = value.is_undefined() || (boolean && !value.is_true());
    Ok(if replace {
        default_value
    } else {
        value.clone()
    })
}

/// In Python whatever has a length and items is a sequence, strings and dictionaries among them.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map
    )
}

/// What a template says when it does not accept a chat.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}

fn strftime_now(now: DateTime) -> Value {
    Value::from_function(move |format: &str| {
        now.format(format).map_err(|directive| {
            let message = format!("strftime_now: directive {directive:?} is not known");
            Error::new(ErrorKind::InvalidOperation, message)
        })
    })
}

fn render_error(source: Error) -> TextError {
    let line = line(&source);
    if let Some(Refusal(message)) = find_source(&source) {
        return TextError::TemplateRefused {
            line,
            message: message.clone(),
        };
    }
    match (source.kind(), source.detail()) {
        (ErrorKind::OutOfFuel, _) => TextError::TemplateSteps {
            line,
            limit: MAX_STEPS,
        },
        (ErrorKind::UnknownFunction, Some(detail)) if detail.starts_with("strftime_now ") => {
            TextError::TemplateClock { line }
        }
        _ => TextError::TemplateRender { line, source },
    }
}

fn find_source(error: &Error) -> Option<&Refusal> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(refusal) = error.downcast_ref() {
            return Some(refusal);
        }
        source = error.source();
    }
    None
}

/// Line of an error from 1, or 0 where the engine knows none.
fn line(error: &Error) -> usize {
    error.line().unwrap_or(0)
}

/// Jinja reads every line ending as `\n`, in strings too.
fn unix_lines(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

/// Turns `{% generation %}` and `{% endgeneration %}` into `{% with %}` and `{% endwith %}`.
///
/// The tags are an extension of transformers: they mark what training learns from, and render
/// their content in a scope of its own. The engine has no extensions, but `with` does the same.
/// Only whole tags are replaced, so lines and whitespace control stay.
fn replace_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out += before;
        rest = tag;
        let word_at = tag.len() - tag.trim_start_matches(['-', '+']).trim_start().len();
        let word = &tag[word_at..];
        let word = &word[..word
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(word.len())];
        let replacement = match word {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => continue,
        };
        let after = &tag[word_at + word.len()..];
        if after
            .trim_start()
            .trim_start_matches(['-', '+'])
            .starts_with("%}")
        {
            out += &tag[..word_at];
            out += replacement;
            rest = after;
        }
    }
    out + rest
}
