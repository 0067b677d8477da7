use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::DateTime;

/// A conversation, as the chat template sees it.
///
/// As JSON it has the field names of Hugging Face's `apply_chat_template`. The order of keys is
/// kept, since templates print tools and structured content as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chat {
    /// The turns, oldest first. Which roles exist and in which order they may come is the
    /// template's decision.
    pub messages: Vec<Message>,
    /// Tools the model may call, usually JSON schemas of functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// End the prompt with the beginning of the assistant's turn.
    #[serde(default)]
    pub add_generation_prompt: bool,
    /// Date and time for templates that print them (`strftime_now`).
    ///
    /// The caller's clock and time zone, so that a prompt depends on its chat alone. Without it
    /// `strftime_now` is undefined: templates that check for it take their own way, others fail
    /// with [`TextError::TemplateClock`](crate::TextError::TemplateClock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<DateTime>,
    /// Further variables of the template, for instance `enable_thinking`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
}

impl Chat {
    /// A chat that asks for the assistant's next turn.
    pub fn new(messages: Vec<Message>) -> Chat {
        Chat {
            messages,
            add_generation_prompt: true,
            ..Chat::default()
        }
    }
}

/// One turn of a [`Chat`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what else the template knows.
    pub role: String,
    /// A string, for most templates; some accept a list of parts, or JSON `null` beside tool
    /// calls. `None`: the message has no `content` at all.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub content: Option<Value>,
    /// Further fields, for instance `tool_calls`.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A turn of plain text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Message {
        Message {
            role: role.into(),
            content: Some(Value::String(text.into())),
            extra: Map::new(),
        }
    }
}

/// Keeps `null` apart from an absent field: templates tell the two apart.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
