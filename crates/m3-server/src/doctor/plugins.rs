//! Backends: which were found, why each was refused, which one would serve, and the kernel each operation would take.

use m3_abi::ProbeRequest;
use m3_abi::discover::Candidate;

use super::Check;
use super::check::gib;
use crate::args::Options;
use crate::{backends, error, place, weights::Weights};

pub(super) fn checks(plan: &Options) -> Vec<Check> {
    let weights = place::model_dir(&plan.model).and_then(|dir| Weights::open(&dir, plan.model.dummy_weights));
    let config = weights.as_ref().map(|weights| weights.config_json().to_vec()).unwrap_or_default();
    let mut checks = vec![model(&weights)];
    let request = ProbeRequest { config, tp: plan.backend.tp, ep: plan.backend.ep };
    let discovery = match backends::find(&plan.backend, &request) {
        Ok(discovery) => discovery,
        Err(error) => {
            let remedy = "mend --backend or --backend-dir";
            checks.push(Check::problem("backends", "search", error::sentence(&error), remedy));
            return checks;
        }
    };
    let chosen = discovery.chosen().ok().map(|(plugin, _)| m3_abi::Driver::name(plugin).to_owned());
    checks.extend(discovery.candidates.iter().map(|each| candidate(each, chosen.as_deref())));
    match discovery.chosen() {
        Ok((_, report)) => checks.extend(weights.ok().and_then(|weights| memory(plan, &weights, report))),
        Err(reason) => {
            let remedy = "give another --backend, or mend what the refusals name";
            checks.push(Check::problem("backends", "choice", reason, remedy));
        }
    }
    checks
}

/// Files are opened and their headers checked; no tensor is read.
fn model(weights: &anyhow::Result<Weights>) -> Check {
    match weights {
        Ok(weights) => {
            let bytes = weights.bytes().map_or_else(|_| "unknown size".to_owned(), gib);
            let text = &weights.config().text;
            let finding = format!(
                "{} layers, context {}, {bytes} of weights, complete",
                text.layers.len(),
                text.max_position_embeddings
            );
            Check::good("backends", "model", finding)
        }
        Err(error) => {
            let remedy = "check the path, the disk and the revision, and get the files again";
            Check::problem("backends", "model", error::sentence(error), remedy)
        }
    }
}

fn candidate(candidate: &Candidate, chosen: Option<&str>) -> Check {
    let name = &candidate.name;
    let report = match &candidate.outcome {
        Ok(report) => report,
        Err(refusal) => {
            return Check::note("backends", name, format!("refused ({}): {refusal}", candidate.origin));
        }
    };
    let mut finding = format!(
        "{}version {}, score {}, {} x {}",
        if chosen == Some(name) { "would serve: " } else { "" },
        candidate.version,
        report.score,
        report.num_devices,
        report.device
    );
    if report.memory_total_bytes > 0 {
        let (free, total) = (gib(report.memory_free_bytes), gib(report.memory_total_bytes));
        finding.push_str(&format!(", {free} of {total} free"));
    }
    let paths: Vec<String> = report.paths.lines().map(str::to_owned).collect();
    let none = || vec!["it names no kernel paths".to_owned()];
    Check::good("backends", name, finding).with(if paths.is_empty() { none() } else { paths })
}

/// Whether the weights of a rank fit beside what else is on its device.
fn memory(plan: &Options, weights: &Weights, report: &m3_abi::ProbeReport) -> Option<Check> {
    let (tp, total) = (u64::from(plan.backend.tp), report.memory_total_bytes);
    let rank = weights.bytes().ok()? / tp;
    // Ranks that outnumber the devices share them.
    let on_device = rank * tp.div_ceil(u64::from(report.num_devices.max(1)));
    if total == 0 {
        return None;
    }
    let each = format!("{} of weights on each device of {}", gib(on_device), gib(total));
    Some(if on_device > total {
        let least = (rank * tp).div_ceil(total);
        let remedy = format!("give --tp {} or more", least.next_power_of_two());
        Check::problem("backends", "memory", format!("{each}: they do not fit"), &remedy)
    } else if on_device > report.memory_free_bytes {
        let finding = format!("{each}, and only {} are free", gib(report.memory_free_bytes));
        Check::problem("backends", "memory", finding, "end what else uses the device")
    } else {
        Check::good("backends", "memory", each)
    })
}
