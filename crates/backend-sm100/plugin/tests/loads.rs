//! The plugin file loads on any machine, and says what is missing instead of serving.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use m3_abi::discover::file_name;
use m3_abi::{Driver, Error, OpenRequest, Plugin, ProbeRequest};

#[test]
fn loads_anywhere_and_names_what_is_missing() {
    let test = std::env::current_exe().unwrap();
    let file = test.parent().unwrap().join(file_name("sm100"));
    for plugin in [Plugin::open(&file).unwrap(), Plugin::linked(&backend_sm100::LINKED).unwrap()] {
        assert_eq!(plugin.name(), "sm100");
        let refusals = [
            plugin.probe(&ProbeRequest::default()).map(|_| ()).unwrap_err(),
            plugin.open(&OpenRequest::default()).map(|_| ()).unwrap_err(),
        ];
        for refusal in refusals {
            let Error::Unsupported(said) = refusal else { panic!("{refusal} is not a refusal") };
            assert!(said.contains("kernels missing: run cargo xtask build --backend sm100"), "{said}");
        }
    }
}
