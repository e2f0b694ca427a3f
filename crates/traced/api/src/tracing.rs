//! Spans and events of the crate `tracing` on the timeline.
//!
//! ```
//! use tracing_subscriber::prelude::*;
//! tracing_subscriber::registry().with(everycall::tracing::Layer).init();
//! ```
//!
//! A span is a span of its thread from each time that it is entered until it is exited, so one of
//! a task is there in each poll. Its fields follow its begin as a line; an event is a line. Filters
//! are those of `tracing-subscriber`.

use std::fmt::{self, Write};

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::lines::Line;
use crate::runtime::{self, Mark};

/// Puts spans and events on the timeline, in programs that `cargo everycall` has built. In others
/// it does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layer;

/// A span's fields, as a line shows them.
struct Fields(Line);

impl<S: Subscriber + for<'s> LookupSpan<'s>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !runtime::is_there() || attributes.fields().is_empty() {
            return;
        }
        if let Some(span) = context.span(id) {
            let mut fields = Fields(Line::default());
            attributes.record(&mut fields);
            span.extensions_mut().replace(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !runtime::is_on() {
            return;
        }
        if let Some(span) = context.span(id) {
            runtime::mark(Mark::SpanBegin, span.name(), None);
            if let Some(fields) = span.extensions().get::<Fields>()
                && !fields.0.is_empty()
            {
                fields.0.put();
            }
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            runtime::mark(Mark::SpanEnd, span.name(), None);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !runtime::is_on() {
            return;
        }
        let metadata = event.metadata();
        let mut line = Fields(Line::default());
        let _ = write!(line.0, "{} {}:", metadata.level(), metadata.target());
        event.record(&mut line);
        line.0.put();
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Text that doesn't fit is left out, here and below.
        let _ = self.named(field).and_then(|()| self.0.write_str(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = self.named(field).and_then(|()| write!(self.0, "{value:?}"));
    }
}

impl Fields {
    fn named(&mut self, field: &Field) -> fmt::Result {
        let space = if self.0.is_empty() { "" } else { " " };
        match field.name() {
            "message" => self.0.write_str(space),
            name => write!(self.0, "{space}{name}="),
        }
    }
}
