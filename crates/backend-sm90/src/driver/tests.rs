//! Refusals, each a sentence, and the devices that are taken.

use m3_abi::types::DTYPE_F32;
use m3_gpu::fake::{FakeDevice, Progress};

use super::*;

const NANO: &[u8] = include_bytes!("../../../../models/m3-nano/config.json");

fn plan(tp: u32) -> Plan {
    Plan::new(NANO, tp, 1).unwrap()
}

fn request() -> OpenRequest {
    OpenRequest {
        tp: 1,
        ep: 1,
        dtype: DTYPE_BF16,
        kv_dtype: DTYPE_BF16,
        max_rows: 4,
        max_step_tokens: 64,
        max_context: 512,
        page_tokens: 128,
        ..OpenRequest::default()
    }
}

fn refusal(request: &OpenRequest, tp: u32) -> String {
    check_request(request, &plan(tp)).unwrap_err().to_string()
}

#[test]
fn what_is_served_is_taken() {
    check_request(&request(), &plan(1)).unwrap();
    check_request(&OpenRequest { flags: OPEN_SOLO, tp: 2, ..request() }, &plan(2)).unwrap();
}

#[test]
fn each_refusal_names_the_value() {
    let base = request();
    assert_eq!(
        refusal(&OpenRequest { max_rows: 0, ..base.clone() }, 1),
        "max_rows is 0, at least 1 is needed"
    );
    let two = refusal(&OpenRequest { tp: 2, ..base.clone() }, 2);
    assert!(two.starts_with("tp 2: collectives are not built"), "{two}");
    let exact = refusal(&OpenRequest { dtype: DTYPE_F32, ..base.clone() }, 1);
    assert_eq!(exact, "dtype bit 1: the sm90 backend computes in bfloat16");
    let long = refusal(&OpenRequest { max_context: 2_000_000, ..base.clone() }, 1);
    assert_eq!(long, "a context of 2000000 tokens has 15625 pages; the kernels take 8192");
    assert_eq!(refusal(&OpenRequest { flags: 64, ..base }, 1), "unknown open flags 0x40");
}

#[test]
fn only_hopper_is_taken() {
    let hopper = FakeDevice::new(1 << 20, Progress::Eager).device();
    is_hopper(hopper.info()).unwrap();
    let other = DeviceInfo { capability: (8, 9), arch: "sm_89".to_owned(), ..hopper.info().clone() };
    let refusal = is_hopper(&other).unwrap_err().to_string();
    assert_eq!(refusal, "device 0 is double of an H200 (sm_89); these kernels are for Hopper (sm_90)");
}

#[test]
fn both_reasons_are_said_at_once() {
    let (device, pack) = (unsupported("no device"), unsupported("kernels missing"));
    let error = both::<(), ()>(Err(pack), Err(device)).unwrap_err();
    assert_eq!(error.to_string(), "no device; kernels missing");
}

#[test]
fn sizes_are_a_ranks_own() {
    let dims = plan(2).dims(1).unwrap();
    assert_eq!((dims.heads, dims.kv_heads, dims.index_heads, dims.group()), (2, 1, 1, 2));
    assert_eq!((dims.expert_width, dims.shared_width, dims.dense_width), (32, 32, 384));
    assert_eq!(dims.vocab_part, 1280..2560);
    assert_eq!(dims.most_projected(), (2 + 2) * 128 + 2 * 128);
    assert_eq!(dims.named()["vocab"], 1280);
}
