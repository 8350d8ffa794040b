//! How the parser will read a value that somebody is about to write: the same typing as for a model's output, asked in
//! advance. Grammars of tool calls use it, so that whatever they allow is read back as what was meant.

use std::sync::Arc;

use serde_json::Value;

use super::element::ElementKind;
use super::faults::Faults;
use super::schema::{ToolSet, View};

/// One element of a tool call, as the parser sees it.
pub struct Reading {
    tools: Arc<ToolSet>,
    kind: ElementKind,
}

impl Reading {
    /// A parameter of a declared tool.
    pub fn parameter(tools: &Arc<ToolSet>, tool: &str, key: &str) -> Self {
        let view = tools.property(&tools.parameters(tool), key);
        Reading { kind: ElementKind::parameter(view, tools), tools: Arc::clone(tools) }
    }

    /// The `index`th child of this element, with this tag.
    pub fn child(&self, tag: &str, index: usize) -> Self {
        Reading { kind: self.kind.child(tag, index, &self.tools), tools: Arc::clone(&self.tools) }
    }

    /// What the element's text is read as, when it has no children.
    pub fn leaf(&self, text: &str) -> Value {
        let json = self.kind.leaf(text, 1, &mut Faults::default());
        serde_json::from_str(&json).unwrap_or(Value::Null)
    }

    /// True when no schema says anything about the element's type.
    pub fn is_untyped(&self) -> bool {
        self.kind.view == View::default() || self.tools.types(&self.kind.view).is_none()
    }

    /// Elements with equal marks are read alike.
    pub fn mark(&self) -> String {
        format!("{:?}", self.kind)
    }
}
