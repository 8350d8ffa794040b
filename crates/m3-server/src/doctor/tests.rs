//! Machines that are folders: what is seen on them and what is said of it.

use super::*;
use crate::args::parse;

fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let machine = Machine { root: dir.path().to_owned() };
    (dir, machine)
}

fn plan(flags: &str) -> Options {
    let words: Vec<String> = format!("doctor {flags}").split_whitespace().map(str::to_owned).collect();
    Options::read(&parse(&words).unwrap()).unwrap()
}

fn named<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name} in {checks:?}"))
}

const GPU: &str = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\n";

fn nvidia(version: &str) -> String {
    format!(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\nGCC version: gcc 12\n"
    )
}

#[test]
fn gpus_drivers_and_libraries_are_found() {
    let version = nvidia("580.159.04");
    let (_dir, machine) = machine(&[
        ("/proc/driver/nvidia/gpus/0000:01:00.0/information", GPU),
        ("/proc/driver/nvidia/gpus/0000:02:00.0/information", GPU),
        ("/proc/driver/nvidia/version", &version),
        ("/usr/lib64/libcuda.so.1", ""),
        ("/usr/lib64/libnccl.so.2", ""),
    ]);
    let checks = devices::checks(&machine);
    assert_eq!(named(&checks, "NVIDIA GPUs").finding, "2 x NVIDIA H200");
    assert_eq!(named(&checks, "NVIDIA driver").finding, "580.159.04");
    assert!(named(&checks, "NCCL").finding.starts_with("2 in "));
    assert!(checks.iter().all(|check| check.level == Level::Good), "{checks:?}");
}

#[test]
fn an_old_driver_and_a_missing_library_are_told_with_a_way_out() {
    let version = nvidia("535.54.03");
    let (_dir, machine) = machine(&[
        ("/proc/driver/nvidia/gpus/a/information", GPU),
        ("/proc/driver/nvidia/gpus/b/information", GPU),
        ("/proc/driver/nvidia/version", &version),
    ]);
    let checks = devices::checks(&machine);
    let driver = named(&checks, "NVIDIA driver");
    assert_eq!(
        (driver.level, driver.finding.as_str()),
        (Level::Problem, "535.54.03; the plugins need 580 or newer")
    );
    assert_eq!(named(&checks, "NCCL").level, Level::Warning);
    assert!(named(&checks, "NCCL").finding.contains("--tp above 1"));
}

#[test]
fn amd_nodes_without_their_device_file_are_a_problem() {
    const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
    let (_dir, machine) = machine(&[
        (&format!("{NODES}/0/properties"), "cpu_cores_count 64\ngfx_target_version 0\n"),
        (&format!("{NODES}/1/properties"), "simd_count 1216\ngfx_target_version 90402\n"),
    ]);
    let checks = devices::checks(&machine);
    assert_eq!(named(&checks, "AMD GPUs").finding, "1 x gfx942");
    assert!(named(&checks, "AMD driver").finding.contains("/dev/kfd is not there"));
    assert_eq!(named(&checks, "RCCL").level, Level::Note);
}

#[test]
fn a_machine_without_gpus_serves_on_the_cpu() {
    let (_dir, machine) = machine(&[]);
    let checks = examine(&machine, &plan("--port 0"));
    assert!(named(&checks, "GPUs").finding.contains("no GPU is visible"));
    let cpu = named(&checks, "cpu");
    assert!(cpu.finding.starts_with("would serve: version ") && !cpu.details.is_empty(), "{cpu:?}");
    assert!(named(&checks, "model").finding.contains("complete"));
    assert!(report::text(&checks).contains("m3 serve can start: 0 problems"), "{}", report::text(&checks));
}

#[test]
fn a_taken_port_a_missing_model_and_a_missing_plugin_are_problems() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (_dir, machine) = machine(&[]);
    let checks = examine(&machine, &plan(&format!("/no/such/model --port {port} --backend nosuch")));
    assert!(named(&checks, "port").finding.contains(&format!("cannot listen on 127.0.0.1:{port}")));
    assert!(named(&checks, "model").finding.contains("/no/such/model"));
    assert!(named(&checks, "choice").finding.contains("no backend is named nosuch"));
    let problems = checks.iter().filter(|check| check.level == Level::Problem).count();
    assert_eq!(problems, 3, "{checks:?}");
    let json: serde_json::Value = serde_json::from_str(&report::json(&checks)).unwrap();
    assert_eq!((&json["problems"], &json["checks"][0]["level"]), (&3.into(), &"good".into()));
    assert!(report::text(&checks).contains("would not start: 3 problems"));
}

#[test]
fn an_open_address_without_keys_is_warned_of() {
    let (_dir, machine) = machine(&[("/sys/class/infiniband/mlx5_0/node_type", "1")]);
    let checks = network::checks(&machine, &plan("--host 0.0.0.0 --port 0"));
    assert_eq!(named(&checks, "keys").level, Level::Warning);
    assert_eq!(named(&checks, "RDMA cards").finding, "mlx5_0");
    let checks = network::checks(&machine, &plan("--host 0.0.0.0 --port 0 --api-key k"));
    assert!(checks.iter().all(|check| check.level == Level::Good));
}
