//! Streamed text equals the text of all ids at once, cut at the stop string.

use monarch_text::{Text, TextError, TextStream};
use proptest::prelude::*;
use std::sync::LazyLock;

use crate::tiny;

static TINY: LazyLock<Text> = LazyLock::new(tiny);

/// The rule, told for a whole text: the stop string that is complete first counts, of those
/// complete at the same byte the longest.
fn cut<'t>(text: &'t str, stops: &[String]) -> (&'t str, bool) {
    for end in 0..=text.len() {
        let complete = stops
            .iter()
            .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
        if let Some(stop_bytes) = complete.map(String::len).max() {
            return (&text[..end - stop_bytes], true);
        }
    }
    (text, false)
}

/// Pieces of `ids` until a stop, then what `finish` gives, and whether it stopped.
fn streamed(ids: &[u32], stops: &[String], show_special: bool) -> (Vec<String>, bool) {
    let mut stream = TextStream::new(stops, show_special).unwrap();
    let mut pieces = Vec::new();
    for &id in ids {
        let piece = stream.push(&TINY, id).unwrap();
        assert_eq!(piece.stopped, stream.stopped());
        pieces.push(piece.text);
        if piece.stopped {
            break;
        }
    }
    pieces.push(stream.finish());
    (pieces, stream.stopped())
}

fn stops(stops: &[&str]) -> Vec<String> {
    stops.iter().map(|stop| (*stop).to_owned()).collect()
}

fn ids(text: &str) -> Vec<u32> {
    TINY.tokenize(text, false).unwrap()
}

#[test]
fn a_stop_string_over_several_tokens_is_never_shown() {
    let ids = ids("One.\n\nUser: two");
    assert!(ids.len() > 5);
    let (pieces, stopped) = streamed(&ids, &stops(&["\n\nUser:"]), false);
    assert!(stopped);
    assert_eq!(pieces.concat(), "One.");
}

#[test]
fn the_start_of_a_stop_string_is_held_back_and_released() {
    // Tokens of one byte each.
    let byte = |text: &str| TINY.token_id(text).unwrap();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(byte);
    let (pieces, stopped) = streamed(&[a, b, c, a, b, d], &stops(&["abcd"]), false);
    assert_eq!(pieces, ["", "", "", "abc", "", "abd", ""]);
    assert!(!stopped);
    let (pieces, _) = streamed(&[a, b, c], &stops(&["abcd"]), false);
    assert_eq!(pieces, ["", "", "", "abc"]);
    // A stop string that overlaps itself.
    let (pieces, stopped) = streamed(
        &[a, a, b, a, a, a, b, a, a, b, c],
        &stops(&["aabaab"]),
        false,
    );
    assert_eq!(pieces.concat(), "aaba");
    assert!(stopped);
}

#[test]
fn the_first_complete_stop_string_counts_and_the_longest_of_those() {
    let ids = ids("x abc y");
    assert_eq!(
        streamed(&ids, &stops(&["abc", "b"]), false).0.concat(),
        "x a"
    );
    assert_eq!(
        streamed(&ids, &stops(&["c", "abc", "bc"]), false)
            .0
            .concat(),
        "x "
    );
}

#[test]
fn nothing_follows_a_stop() {
    let mut stream = TextStream::new(&stops(&["b"]), true).unwrap();
    let [a, b] = ["a", "b"].map(|text| TINY.token_id(text).unwrap());
    assert_eq!(stream.push(&TINY, a).unwrap().text, "a");
    assert!(stream.push(&TINY, b).unwrap().stopped);
    let after = stream.push(&TINY, a).unwrap();
    assert_eq!((after.text.as_str(), after.stopped), ("", true));
    assert_eq!(stream.finish(), "");
    assert!(stream.stopped());
}

#[test]
fn the_end_of_a_text_can_complete_a_stop_string() {
    let first_byte_of_emoji = ids("😀")[0];
    let (pieces, stopped) = streamed(&[first_byte_of_emoji], &stops(&["\u{FFFD}"]), true);
    assert_eq!((pieces.concat().as_str(), stopped), ("", true));
}

#[test]
fn hidden_special_tokens_add_nothing_and_break_nothing() {
    let text = "a<|im_end|>b";
    let ids = ids(text);
    assert_eq!(ids.len(), 3);
    assert_eq!(streamed(&ids, &[], true).0.concat(), text);
    assert_eq!(streamed(&ids, &[], false).0.concat(), "ab");
    assert_eq!(
        streamed(&ids, &stops(&["ab"]), false),
        (stops(&["", "", "", ""]), true)
    );
    assert_eq!(streamed(&ids, &stops(&["im_end"]), true).0.concat(), "a<|");
    // A character on both sides of a hidden token, as in the text of all ids.
    let emoji = self::ids("😀");
    let split = [&emoji[..1], &[7], &emoji[1..]].concat();
    assert_eq!(streamed(&split, &[], false).0.concat(), "😀");
    assert_eq!(TINY.detokenize(&split, true).unwrap(), "😀");
    assert_eq!(
        streamed(&split, &[], true).0.concat(),
        TINY.detokenize(&split, false).unwrap()
    );
}

#[test]
fn empty_stop_strings_are_refused() {
    let result = TextStream::new(&stops(&["a", ""]), false);
    assert!(matches!(result, Err(TextError::EmptyStop { index: 1 })));
}

#[test]
fn the_rule_itself_can_fail() {
    // The comparison below must not hold for a stream that ignores its stop strings.
    let ids = ids("Once upon a time");
    let (pieces, _) = streamed(&ids, &[], false);
    assert_ne!(
        pieces.concat(),
        cut("Once upon a time", &stops(&["upon"])).0
    );
    assert_eq!(cut("Once upon a time", &stops(&["upon"])), ("Once ", true));
}

/// Ids that cut characters: mostly single bytes and special tokens, some words.
fn any_id() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 32u32..290, 1 => 0u32..14, 2 => 0u32..8192]
}

/// Stop strings that the text of `ids` is likely to hold, in whole or in part.
fn any_stops(text: String) -> impl Strategy<Value = Vec<String>> {
    let chars: Vec<char> = text.chars().collect();
    let from_text = (any::<prop::sample::Index>(), 1usize..6).prop_map(move |(at, len)| {
        let Some(last) = chars.len().checked_sub(1) else {
            return "x".to_owned();
        };
        let at = at.index(last + 1);
        chars[at..(at + len).min(last + 1)].iter().collect()
    });
    prop::collection::vec(prop_oneof![3 => from_text, 1 => "[ab\u{FFFD}é]{1,4}"], 0..4)
}

proptest! {
    #[test]
    fn streamed_text_is_the_text_of_all_ids_cut_at_the_stop_string(
        (ids, stops, show_special) in (prop::collection::vec(any_id(), 0..60), any::<bool>())
            .prop_flat_map(|(ids, show_special)| {
                let text = TINY.detokenize(&ids, !show_special).unwrap();
                (Just(ids), any_stops(text), Just(show_special))
            })
    ) {
        let whole = TINY.detokenize(&ids, !show_special).unwrap();
        let (expected, expect_stop) = cut(&whole, &stops);
        let (pieces, stopped) = streamed(&ids, &stops, show_special);
        prop_assert_eq!(pieces.concat(), expected);
        prop_assert_eq!(stopped, expect_stop);
    }

    #[test]
    fn no_text_is_held_longer_than_needed(ids in prop::collection::vec(any_id(), 0..40)) {
        // Held back after each id: at most an unfinished character and an unfinished stop string.
        let stops = stops(&["abab", "é\n"]);
        let mut stream = TextStream::new(&stops, true).unwrap();
        let (mut shown, mut bytes) = (String::new(), Vec::new());
        for id in ids {
            let piece = stream.push(&TINY, id).unwrap();
            shown += &piece.text;
            if piece.stopped {
                break;
            }
            bytes.extend_from_slice(TINY.token_bytes(id).unwrap());
            let known = String::from_utf8_lossy(&bytes);
            let known = known.strip_suffix('\u{FFFD}').unwrap_or(&known);
            let held = known.strip_prefix(&shown).unwrap_or("");
            prop_assert!(stops.iter().any(|stop| stop.starts_with(held)), "held {:?}", held);
        }
    }

    #[test]
    fn tokenized_text_comes_back(text in "\\PC{0,40}|[a-z \n<|>_é😀]{0,40}") {
        let ids = TINY.tokenize(&text, false).unwrap();
        prop_assert_eq!(&TINY.detokenize(&ids, false).unwrap(), &text);
        prop_assert_eq!(&streamed(&ids, &[], true).0.concat(), &text);
        let with_begin = TINY.tokenize(&text, true).unwrap();
        prop_assert_eq!(&with_begin[..1], &[1]);
        prop_assert_eq!(&with_begin[1..], &ids[..]);
    }

    #[test]
    fn any_ids_are_decoded_as_the_tokenizer_crate_decodes_them(
        ids in prop::collection::vec(any_id(), 0..40),
        skip_special in any::<bool>(),
    ) {
        static REFERENCE: LazyLock<tokenizers::pipeline::PipelineTokenizer> = LazyLock::new(|| {
            let file = tokenizers::canonicalize_str(&crate::model_file("tokenizer.json")).unwrap();
            tokenizers::from_json(&file).unwrap()
        });
        let ours = TINY.detokenize(&ids, skip_special).unwrap();
        prop_assert_eq!(ours, REFERENCE.decode(&ids, skip_special).unwrap());
    }
}
