//! The report as one page that needs nothing else: tables and plots, no scripts.

use super::plot::{Series, escape, figure};
use super::report::Report;
use super::stats::{Run, Spread};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#191c22;background:#fff}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{border:1px solid #d9dde4;padding:.25rem .6rem;text-align:right}th:first-child,td:first-child{text-align:left}\
pre{background:#eef0f4;padding:.7rem;overflow-x:auto;border-radius:8px}.scroll{overflow-x:auto}\
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(24rem,1fr));gap:1rem}figure{margin:0;border:1px solid #d9dde4;border-radius:10px;padding:.8rem}\
figcaption{font-weight:600}figcaption span,.legend{font-weight:400;color:#565e6c;font-size:.88rem}.legend span{margin-right:.8rem;white-space:nowrap}\
svg .grid{stroke:#d9dde4}svg text{font-size:11px;fill:#565e6c}\
@media(prefers-color-scheme:dark){body{color:#e8eaee;background:#121418}pre{background:#262a32}svg text,figcaption span,.legend{fill:#a3abb9;color:#a3abb9}th,td,figure{border-color:#343a45}svg .grid{stroke:#343a45}}";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let workload = report.workload.as_object();
    let facts: Vec<String> = workload
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null() && !value.is_object())
        .map(|(name, value)| {
            format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), escape(&plain(value)))
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{model}: m3 bench</title><style>{STYLE}</style></head><body>\n<h1>{model}</h1>\n<p>{url}, {tool}, {date}</p>\n<pre>{command}</pre>\n\
         <h2>Latency and throughput</h2>\n<div class=\"scroll\">{table}</div>\n<h2>Plots</h2>\n<div class=\"plots\">{plots}</div>\n\
         {failures}<h2>Workload</h2>\n<table>{facts}</table>\n</body></html>\n",
        model = escape(&report.model),
        url = escape(&report.url),
        tool = escape(&report.tool),
        date = day(report.date),
        command = escape(&report.command),
        table = table(&report.runs),
        plots = plots(&report.runs),
        failures = failures(&report.runs),
        facts = facts.join("")
    )
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn table(runs: &[Run]) -> String {
    let head = [
        "at once",
        "answered",
        "failed",
        "requests/s",
        "tokens/s out",
        "tokens/s all",
        "TTFT p50",
        "TTFT p99",
        "TPOT p50",
        "TPOT p99",
        "ITL p50",
        "ITL p99",
        "E2E p50",
        "E2E p99",
        "goodput",
    ];
    let head: Vec<String> = head.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    let rows: Vec<String> = runs.iter().map(row).collect();
    format!(
        "<table><caption>Times in milliseconds</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table>",
        head.join(""),
        rows.join("")
    )
}

fn row(run: &Run) -> String {
    let two = |spread: &Spread| [format!("{:.1}", spread.p50), format!("{:.1}", spread.p99)];
    let mut cells = vec![
        run.concurrency.to_string(),
        run.completed.to_string(),
        run.failed.to_string(),
        format!("{:.2}", run.request_throughput),
        format!("{:.0}", run.output_throughput),
        format!("{:.0}", run.total_token_throughput),
    ];
    for spread in [&run.ttft_ms, &run.tpot_ms, &run.itl_ms, &run.e2e_ms] {
        cells.extend(two(spread));
    }
    cells.push(run.goodput_share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0)));
    let cells: Vec<String> = cells.into_iter().map(|cell| format!("<td>{cell}</td>")).collect();
    format!("<tr>{}</tr>", cells.join(""))
}

fn plots(runs: &[Run]) -> String {
    let mut all = String::new();
    if runs.len() > 1 {
        let over = |name: &str, of: fn(&Run) -> f64| Series {
            name: name.to_owned(),
            points: runs.iter().map(|run| (run.concurrency as f64, of(run))).collect(),
        };
        let at_once = "requests at once";
        let written = [over("written", |run| run.output_throughput)];
        all.push_str(&figure("Throughput", (at_once, "tokens/s"), &written));
        let firsts = [over("p50", |run| run.ttft_ms.p50), over("p99", |run| run.ttft_ms.p99)];
        all.push_str(&figure("Time to first token", (at_once, "ms"), &firsts));
        let each = [over("p50", |run| run.tpot_ms.p50), over("p99", |run| run.tpot_ms.p99)];
        all.push_str(&figure("Time per output token", (at_once, "ms"), &each));
        let trade = Series {
            name: "a point for each count".to_owned(),
            points: runs
                .iter()
                .filter(|run| run.tpot_ms.p50 > 0.0)
                .map(|run| (1e3 / run.tpot_ms.p50, run.output_throughput))
                .collect(),
        };
        all.push_str(&figure(
            "What one user gets, and all",
            ("tokens/s of one user", "tokens/s of all"),
            &[trade],
        ));
    }
    let shares = |name: &str, of: fn(&Run) -> &Vec<f64>| {
        let line = |run: &Run| Series {
            name: format!("{} at once", run.concurrency),
            points: of(run).iter().enumerate().map(|(at, value)| (*value, at as f64 * 5.0)).collect(),
        };
        let lines: Vec<Series> = runs.iter().filter(|run| !of(run).is_empty()).map(line).collect();
        if lines.is_empty() {
            String::new()
        } else {
            figure(name, ("milliseconds", "% of requests within"), &lines)
        }
    };
    all.push_str(&shares("Time to first token, all requests", |run| &run.ttft_curve_ms));
    all.push_str(&shares("Time per output token, all requests", |run| &run.tpot_curve_ms));
    all
}

fn failures(runs: &[Run]) -> String {
    let rows: Vec<String> = runs
        .iter()
        .flat_map(|run| run.failures.iter().map(move |(reason, count)| (run.concurrency, reason, count)))
        .map(|(at_once, reason, count)| {
            format!("<tr><td>{at_once} at once</td><td>{count}</td><td>{}</td></tr>", escape(reason))
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        format!("<h2>Failures</h2>\n<table>{}</table>\n", rows.join(""))
    }
}

/// Year, month and day of seconds since 1970, by the calendar's own rules.
fn day(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let mut year = 1970;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_are_the_calendars() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_796_000_000, "2026-11-30"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(seconds), expected);
        }
    }
}
