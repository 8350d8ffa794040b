//! Every struct, field and constant of the line as a listing, and a C program that prints the same from the header.
//!
//! `cargo xtask abi` and a test compare the two with each other and with `include/m3_backend.lock`. A field that is
//! missing here does not compile; one that is missing in the header changes a size there.

use core::mem::{offset_of, size_of};
use std::fmt::Write;

use crate::table::Table;
use crate::types::*;

/// A struct as it lies in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name in the header.
    pub name: &'static str,
    pub bytes: usize,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub offset: usize,
    pub bytes: usize,
}

fn field_bytes<S, T>(_: fn(&S) -> &T) -> usize {
    size_of::<T>()
}

macro_rules! layouts {
    ($($type:ident = $name:literal { $($field:ident),+ $(,)? })+) => {
        /// All structs, in the order of the header.
        pub fn layouts() -> Vec<Layout> {
            vec![$({
                // Without `..`: a new field must be listed here.
                let _listed = |value: $type| { let $type { $($field: _),+ } = value; };
                Layout {
                    name: $name,
                    bytes: size_of::<$type>(),
                    fields: vec![$(Field {
                        name: stringify!($field),
                        offset: offset_of!($type, $field),
                        bytes: field_bytes(|value: &$type| &value.$field),
                    }),+],
                }
            }),+]
        }
    };
}

layouts! {
    Span = "m3_span" { data, count, stride }
    Text = "m3_text" { data, capacity, len }
    Host = "m3_host" { size, major, minor, reserved, log }
    ProbeArgs = "m3_probe_args" { size, tp, ep, reserved, config }
    Probe = "m3_probe" {
        size, score, num_devices, weight_formats, dtypes, kv_dtypes, quant_mode, flags, memory_total_bytes,
        memory_free_bytes, device, arch, paths,
    }
    OpenArgs = "m3_open_args" {
        size, flags, rank, tp, ep, dp, node, device, dtype, kv_dtype, max_rows, max_step_tokens, max_context,
        page_tokens, max_logprobs, num_threads, page_memory_bytes, collective_timeout_ms, config, comm_id,
    }
    Tensor = "m3_tensor" {
        size, format, num_dims, group_offset, shape, strides, name, data, scale, scale_stride, seed,
    }
    Ready = "m3_ready" { size, reserved, page_bytes, max_pages, weight_bytes, workspace_bytes }
    ReserveArgs = "m3_reserve_args" { size, reserved, num_pages }
    WarmShape = "m3_warm_shape" { num_tokens, num_seqs, context_len, reserved }
    RowBind = "m3_row_bind" {
        row, num_logprobs, seed, temperature, top_p, min_p, top_k, repetition_penalty, presence_penalty,
        frequency_penalty, history_offset, prompt_len, output_len, bias_offset, num_biases,
    }
    TokenBias = "m3_token_bias" { token, bias }
    PageAppend = "m3_page_append" { row, first, offset, count }
    Seq = "m3_seq" {
        row, flags, first_position, num_tokens, token_offset, num_logits, output_offset, target_offset, mask_offset,
        output_index,
    }
    MediaSpan = "m3_media_span" { handle, row, first_position, len, first_row }
    StepArgs = "m3_step_args" {
        size, reserved, id, releases, binds, pages, page_ids, seqs, tokens, targets, masks, history, biases, media,
    }
    OutputArgs = "m3_output_args" {
        size, capacity, top_capacity, reserved, tokens, logprobs, faults, ranks, top_ids, top_logprobs, device_time_us,
    }
    EncodeArgs = "m3_encode_args" { size, reserved, patches, row_len, grids }
    EncodeResult = "m3_encode_result" { size, num_rows, handle, ticket, bytes }
    TapArgs = "m3_tap_args" { size, num_dims, name, data, capacity, shape }
    Region = "m3_region" {
        base, len_bytes, memory_kind, device, page_stride_bytes, first_layer, num_layers, lanes, dtype, layout_hash,
    }
    RegionArgs = "m3_region_args" { size, reserved, data, capacity, stride, count }
    PageCopy = "m3_page_copy" { from, to }
    Table = "m3_table" {
        size, major, minor, reserved, name, version, probe, comm_id, open, load, ready, reserve, warm, submit, wait,
        done, close, copy_pages, read_pages, write_pages, regions, encode, media_free, tap, trace,
    }
}

/// All constants with their names in the header.
pub const CONSTANTS: &[(&str, u32)] = &[
    ("M3_MAJOR", MAJOR),
    ("M3_MINOR", MINOR),
    ("M3_OK", STATUS_OK as u32),
    ("M3_UNSUPPORTED", STATUS_UNSUPPORTED as u32),
    ("M3_FATAL", STATUS_FATAL as u32),
    ("M3_NONE", NONE),
    ("M3_FORMAT_F32", FORMAT_F32),
    ("M3_FORMAT_BF16", FORMAT_BF16),
    ("M3_FORMAT_MXFP8", FORMAT_MXFP8),
    ("M3_FORMAT_BLOCK_FP8", FORMAT_BLOCK_FP8),
    ("M3_FORMAT_NVFP4", FORMAT_NVFP4),
    ("M3_DTYPE_F32", DTYPE_F32),
    ("M3_DTYPE_BF16", DTYPE_BF16),
    ("M3_DTYPE_FP8_E4M3", DTYPE_FP8_E4M3),
    ("M3_QUANT_WEIGHT_ONLY", QUANT_WEIGHT_ONLY),
    ("M3_QUANT_W8A8", QUANT_W8A8),
    ("M3_QUANT_BLOCK_FP8", QUANT_BLOCK_FP8),
    ("M3_PROBE_KEEP_MAPPED", PROBE_KEEP_MAPPED),
    ("M3_PROBE_BY_NAME_ONLY", PROBE_BY_NAME_ONLY),
    ("M3_PROBE_ENCODES", PROBE_ENCODES),
    ("M3_OPEN_SOLO", OPEN_SOLO),
    ("M3_OPEN_TAPS", OPEN_TAPS),
    ("M3_SEQ_CHAINED", SEQ_CHAINED),
    ("M3_FAULT_NAN", FAULT_NAN),
    ("M3_FAULT_EMPTY_MASK", FAULT_EMPTY_MASK),
    ("M3_LOG_ERROR", crate::log::ERROR),
    ("M3_LOG_WARN", crate::log::WARN),
    ("M3_LOG_INFO", crate::log::INFO),
    ("M3_LOG_DEBUG", crate::log::DEBUG),
];

/// One line a thing: `constant NAME VALUE`, `struct NAME BYTES`, `field STRUCT.NAME OFFSET BYTES`.
pub fn listing() -> String {
    let mut lines = String::new();
    for (name, value) in CONSTANTS {
        lines += &format!("constant {name} {value}\n");
    }
    for layout in layouts() {
        lines += &format!("struct {} {}\n", layout.name, layout.bytes);
        for field in &layout.fields {
            lines += &format!("field {}.{} {} {}\n", layout.name, field.name, field.offset, field.bytes);
        }
    }
    lines
}

/// A program, in C and C++ alike, that prints [`listing`] as the header has it.
pub fn c_program() -> String {
    let mut body = String::new();
    for (name, _) in CONSTANTS {
        // Writing to a string cannot fail.
        let _ = writeln!(body, "    printf(\"constant {name} %lu\\n\", (unsigned long)(uint32_t)({name}));");
    }
    for layout in layouts() {
        let name = layout.name;
        let _ = writeln!(body, "    printf(\"struct {name} %lu\\n\", (unsigned long)sizeof({name}));");
        for Field { name: field, .. } in &layout.fields {
            let _ = writeln!(
                body,
                "    printf(\"field {name}.{field} %lu %lu\\n\", (unsigned long)offsetof({name}, {field}), \
                 (unsigned long)sizeof((({name} *)0)->{field}));"
            );
        }
    }
    format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"m3_backend.h\"\nint main(void) {{\n{body}    return 0;\n}}\n"
    )
}

/// Structs with room between their fields, which would be implicit padding.
pub fn padded() -> Vec<&'static str> {
    let is_padded = |layout: &Layout| {
        let mut end = 0;
        let gap = layout.fields.iter().any(|field| {
            let gap = field.offset != end;
            end = field.offset + field.bytes;
            gap
        });
        gap || end != layout.bytes
    };
    layouts().iter().filter(|layout| is_padded(layout)).map(|layout| layout.name).collect()
}
