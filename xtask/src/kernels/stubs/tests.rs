//! Generated stubs are Rust that checks what the row promises, and the committed file locks them.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use super::super::hold_stubs;
use super::*;
use serde_json::json;

/// One kernel with every kind of argument and two variants, one without variants.
fn description() -> Description {
    let argument = |name: &str, kind: &str, multiple: u64, nullable: bool| json!({ "name": name, "type": kind, "multiple": multiple, "nullable": nullable });
    let described = json!({
        "target": "sm90",
        "toolchain": { "triton": "3.9.0" },
        "shapes": [],
        "rows": [
            {
                "name": "mat_mul", "source": "gemm/gemm.py", "function": "mat_mul",
                "arguments": [
                    argument("a", "tensor<bf16>[BLOCK_M, BLOCK_K]", 1, false),
                    argument("bias", "*f32", 16, true),
                    argument("out", "*bf16", 16, false),
                    argument("N", "i32", 16, false),
                    argument("type", "u32", 1, false),
                    argument("stride", "i64", 1, false),
                    argument("seed", "u64", 1, false),
                    argument("scale", "f32", 1, false),
                ],
                "variants": [
                    { "BLOCK_M": 16, "num_warps": 4, "SPLIT": true },
                    { "name": "wide_tile", "BLOCK_M": 128, "num_warps": 4, "SPLIT": false, "maxnreg": 64 },
                ],
                "constexprs": { "BLOCK_K": 64, "HIDDEN": "$hidden", "BLOCK_M": 1 },
            },
            {
                "name": "fill", "source": "fill/fill.py", "function": "fill",
                "arguments": [argument("out", "*u8", 1, false)],
                "variants": [{}], "constexprs": {},
            },
        ],
    });
    serde_json::from_value(described).unwrap()
}

fn generated(description: &Description) -> String {
    generate(&crate::root(), description).unwrap()
}

#[test]
fn stubs_are_rust_that_checks_every_promise() {
    let text = generated(&description());
    syn::parse_file(&text).unwrap();
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "list.matrix(\"a\", arguments.a, MapElement::Bf16)?;",
        "list.nullable_pointer(\"bias\", arguments.bias, 16)?;",
        "list.pointer(\"out\", arguments.out, 16)?;",
        "list.i32(\"N\", arguments.n, 16)?;",
        "list.u32(\"type\", arguments.r#type, 1)?;",
        "list.i64(\"stride\", arguments.stride, 1)?;",
        "list.u64(\"seed\", arguments.seed, 1)?;",
        "list.f32(arguments.scale)?;",
        "self.0.launch(queue, grid, variant as usize, &mut list)",
        "pub enum MatMulVariant { BlockM16Warps4SplitTrue, WideTile, }",
        "pub const BLOCK_K: u32 = 64;",
        "Self::WideTile => 128,",
        "pub const fn split(self) -> bool",
        "pub const fn num_warps(self) -> u32 { 4 }",
        "pub struct FillArguments",
        "self.0.launch(queue, grid, 0, &mut list)",
    ] {
        assert!(flat.contains(part), "{part} is not in\n{text}");
    }
    assert!(!flat.contains("HIDDEN"), "a shape's dim is no constant");
    assert!(!flat.contains("const BLOCK_M"), "a variant's value is the variant's");
    assert!(!flat.contains("maxnreg"), "a key that only one variant has is no property of all");
}

#[test]
fn contract_and_layout_say_everything_that_a_launch_depends_on() {
    let row = &description().rows[0];
    assert_eq!(row.layout().unwrap(), "mppiulqf");
    assert_eq!(
        row.contract().unwrap(),
        "mat_mul(a: tensor<bf16>[BLOCK_M, BLOCK_K], bias: *f32 @16 null, out: *bf16 @16, N: i32 @16, type: u32, \
         stride: i64, seed: u64, scale: f32) as BlockM16Warps4SplitTrue | WideTile"
    );
    assert_eq!(super::super::index::compiled_dims(&description().rows), ["hidden"]);
}

#[test]
fn equal_variants_are_refused() {
    let mut twice = description();
    let first = twice.rows[0].variants[0].clone();
    twice.rows[0].variants.push(first);
    let refusal = generate(&crate::root(), &twice).unwrap_err().to_string();
    assert_eq!(refusal, "kernel mat_mul: variant BlockM16Warps4SplitTrue is there twice");
}

#[test]
fn changed_argument_fails_until_blessed() {
    let folder = tempfile::tempdir().unwrap();
    let stubs = folder.path().join("crates/backend-sm90/src/kernels.rs");
    std::fs::create_dir_all(stubs.parent().unwrap()).unwrap();
    std::fs::copy(crate::root().join("rustfmt.toml"), folder.path().join("rustfmt.toml")).unwrap();
    let hold = |description: &Description, bless| hold_stubs(folder.path(), "sm90", description, bless);
    let mut description = description();
    hold(&description, true).unwrap();
    hold(&description, false).unwrap();
    let blessed = std::fs::read_to_string(&stubs).unwrap();
    description.rows[0].arguments[2].multiple = 8;
    let refusal = hold(&description, false).unwrap_err().to_string();
    assert!(refusal.contains("--bless") && refusal.contains("a multiple of 8"), "{refusal}");
    assert_eq!(std::fs::read_to_string(&stubs).unwrap(), blessed, "a refusal writes nothing");
    hold(&description, true).unwrap();
    hold(&description, false).unwrap();
}
