//! The log and the traces: how they are started, the span of a request, and the level while the server runs.
//!
//! Neither holds a prompt, an answer, media or a key: only ids, routes, counts and times are ever given to them.

use std::io::IsTerminal;
use std::sync::OnceLock;

use axum::http::{HeaderMap, HeaderValue};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::{Level, Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, filter, reload};

use crate::args::{Command, Parsed};
use crate::error::cut;

/// What spans of requests are told apart from everything else by.
const REQUESTS: &str = "m3::request";
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The way to the filter of a log that runs.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Sends what is left when the program ends.
#[derive(Default)]
pub struct Logging(Option<SdkTracerProvider>);

impl Drop for Logging {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(SdkTracerProvider::shutdown) {
            tracing::warn!("the last traces were not sent: {error}");
        }
    }
}

/// `M3_LOG` takes filters such as `m3_core=debug`; the flag takes one level. Call it outside of any async code.
pub fn start(parsed: &Parsed) -> Result<Logging, String> {
    let quiet = !matches!(parsed.command, Command::Serve);
    let level = level(parsed.value("log-level").unwrap_or(if quiet { "warn" } else { "info" }))
        .map_err(|error| format!("--log-level {error}"))?;
    let filter = match std::env::var("M3_LOG") {
        Ok(text) => EnvFilter::try_new(&text).map_err(|error| format!("M3_LOG is \"{text}\": {error}"))?,
        Err(_) => EnvFilter::new(level),
    };
    let (filter, handle) = reload::Layer::new(filter);
    let lines = lines(parsed.value("log-format").unwrap_or("text"))?;
    let provider = parsed.value("otlp-traces-endpoint").map(exporter).transpose()?;
    let traces = provider.as_ref().map(|provider| traces(provider.tracer("m3")));
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).init();
    let _ = FILTER.set(handle);
    m3_abi::log::set_sink(|level, text| match level {
        m3_abi::log::ERROR => tracing::error!(target: "backend", "{text}"),
        m3_abi::log::WARN => tracing::warn!(target: "backend", "{text}"),
        m3_abi::log::INFO => tracing::info!(target: "backend", "{text}"),
        _ => tracing::debug!(target: "backend", "{text}"),
    });
    Ok(Logging(provider))
}

/// Changes what a log that runs lets through; filters as `M3_LOG` takes them.
pub fn set_filter(text: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(text)
        .map_err(|error| format!("level is \"{}\"; expected a level or filters ({error})", cut(text, 100)))?;
    let handle = FILTER.get().ok_or("this program's log was not started here and cannot be changed")?;
    handle.reload(filter).map_err(|error| format!("the log cannot be changed: {error}"))
}

/// A level by its name.
pub fn level(text: &str) -> Result<&str, String> {
    let name = if text == "warning" { "warn" } else { text };
    if LEVELS.contains(&name) {
        return Ok(name);
    }
    Err(format!("is \"{}\"; expected error, warn, info, debug or trace", cut(text, 100)))
}

/// One request, from its arrival to the last byte of its answer. A `traceparent` puts it into its sender's trace.
pub fn request_span(id: &HeaderValue, method: &str, path: &str, headers: &HeaderMap) -> Span {
    let id = id.to_str().unwrap_or("");
    let span = tracing::span!(
        target: REQUESTS, Level::INFO, "request",
        id, method, path = cut(path, 200), status = field::Empty
    );
    if let Some(parent) = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(parent) {
        // Without traces there is nothing to put it into.
        let _ = span.set_parent(parent);
    }
    span
}

/// The answer's status; its body may still be on its way.
pub fn answered(span: &Span, status: u16) {
    span.record("status", status);
    let _entered = span.enter();
    tracing::debug!(status, "answered");
}

/// `00-TRACE-SPAN-FLAGS` of the W3C's trace context.
fn parent(text: &str) -> Option<opentelemetry::Context> {
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
    let parts: Vec<&str> = text.trim().split('-').collect();
    let &["00", trace, span, flags] = parts.as_slice() else { return None };
    if (trace.len(), span.len(), flags.len()) != (32, 16, 2) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & 1);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let remote = SpanContext::new(trace, span, flags, true, TraceState::default());
    remote.is_valid().then(|| opentelemetry::Context::new().with_remote_span_context(remote))
}

fn lines(format: &str) -> Result<Box<dyn Layer<Registry> + Send + Sync>, String> {
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        "text" => Ok(lines.with_ansi(colours).boxed()),
        "json" => Ok(lines.json().flatten_event(true).with_span_list(false).boxed()),
        other => Err(format!("--log-format is \"{}\"; expected text or json", cut(other, 100))),
    }
}

fn traces<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
{
    let requests = filter::filter_fn(|metadata| metadata.is_span() && metadata.target() == REQUESTS);
    tracing_opentelemetry::layer().with_tracer(tracer).with_filter(requests)
}

fn exporter(endpoint: &str) -> Result<SdkTracerProvider, String> {
    let bad = |error: &dyn std::fmt::Display| {
        format!("--otlp-traces-endpoint is \"{}\"; expected http://HOST:PORT ({error})", cut(endpoint, 100))
    };
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(bad(&"no scheme"));
    }
    let path = if endpoint.ends_with("/v1/traces") { "" } else { "/v1/traces" };
    let address = format!("{}{path}", endpoint.trim_end_matches('/'));
    crate::tls::provide();
    let exporter = SpanExporter::builder().with_http().with_endpoint(address).build();
    let exporter = exporter.map_err(|error| bad(&error))?;
    let resource = Resource::builder().with_service_name("m3").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TraceContextExt;

    #[test]
    fn a_trace_parent_is_read_or_left_alone() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = parent(good).unwrap();
        let span = context.span();
        let remote = span.span_context();
        assert_eq!(remote.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(remote.is_sampled() && remote.is_remote());
        for bad in [
            "",
            "00-0-0-01",
            "01-x",
            &good.replace('7', "x"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        ] {
            assert!(parent(bad).is_none(), "{bad}");
        }
    }
}
