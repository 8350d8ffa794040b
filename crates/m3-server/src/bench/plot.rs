//! Line plots as SVG text, for a page that must stand alone.

use std::fmt::Write;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;
/// Colours and dashes, so that lines are told apart without colours too.
const STYLES: [(&str, &str); 4] =
    [("#2b59c3", ""), ("#b4530a", "6 3"), ("#1d7a45", "2 3"), ("#7b3fa0", "9 3 2 3")];

/// One line: its name and points.
pub(super) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A figure with title, axes, legend and the values in words for those who cannot see it.
pub(super) fn figure(title: &str, (x_name, y_name): (&str, &str), series: &[Series]) -> String {
    let points = || series.iter().flat_map(|line| &line.points);
    let x_top = ceiling(points().map(|point| point.0).fold(0.0, f64::max));
    let y_top = ceiling(points().map(|point| point.1).fold(0.0, f64::max));
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / x_top;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / y_top);
    let mut svg = String::new();
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let (across, up) = (x(x_top * share), y(y_top * share));
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{up:.1}\" y2=\"{up:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            up + 4.0,
            short(y_top * share),
            HEIGHT - BOTTOM + 16.0,
            short(x_top * share)
        );
    }
    for (line, (colour, dashes)) in series.iter().zip(STYLES.iter().cycle()) {
        let path: Vec<String> =
            line.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>",
            path.join(" ")
        );
        for point in line.points.iter().filter(|_| line.points.len() < 12) {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(point.0),
                y(point.1)
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        WIDTH / 2.0,
        HEIGHT - 6.0,
        escape(x_name)
    );
    let words: Vec<String> = series.iter().map(in_words).collect();
    let label = escape(&format!("{title}. {} over {}. {}", y_name, x_name, words.join(". ")));
    format!(
        "<figure><figcaption>{} <span>{}</span></figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{label}\">{svg}</svg>{}</figure>",
        escape(title),
        escape(y_name),
        legend(series)
    )
}

fn legend(series: &[Series]) -> String {
    let entry = |(line, (colour, dashes)): (&Series, &(&str, &str))| {
        format!(
            "<span><svg width=\"28\" height=\"8\" aria-hidden=\"true\"><line x1=\"0\" x2=\"28\" y1=\"4\" y2=\"4\" stroke=\"{colour}\" \
             stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/></svg> {}</span>",
            escape(&line.name)
        )
    };
    let entries: Vec<String> = series.iter().zip(STYLES.iter().cycle()).map(entry).collect();
    format!("<p class=\"legend\">{}</p>", entries.join(" "))
}

fn in_words(line: &Series) -> String {
    let points: Vec<String> =
        line.points.iter().map(|(x, y)| format!("{} at {}", short(*y), short(*x))).collect();
    format!("{}: {}", line.name, points.join(", "))
}

/// The next of 1, 2, 5 times a power of ten.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * 0.999).unwrap_or(10.0 * power)
}

fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        large if large >= 1000.0 => format!("{:.1}k", value / 1000.0),
        whole if (whole - whole.round()).abs() < 1e-9 => format!("{value:.0}"),
        middle if middle >= 100.0 => format!("{value:.0}"),
        small if small >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Text as part of a page.
pub(super) fn escape(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;").replace('\'', "&#39;")
}
