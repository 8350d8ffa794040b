//! Tensor maps: what Hopper's copy engine needs to know of a matrix.

use cudarc::driver::sys::{
    self, CUresult, CUtensorMapDataType_enum as DataType, CUtensorMapFloatOOBfill_enum as Outside,
    CUtensorMapInterleave_enum as Interleave, CUtensorMapL2promotion_enum as Promotion,
    CUtensorMapSwizzle_enum as Swizzle,
};

use crate::launch::{MapElement, TensorMap, TensorMapRequest};

/// Fills `map`; a context is current.
pub(super) fn encode(map: &mut TensorMap, request: &TensorMapRequest) -> CUresult {
    let element = match request.element {
        MapElement::U8 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        MapElement::Bf16 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        MapElement::F32 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    };
    let swizzle = match request.swizzle {
        0 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        1 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        2 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        3 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => return CUresult::CUDA_ERROR_INVALID_VALUE,
    };
    // Innermost dimension first.
    let dimensions = [request.columns, request.rows];
    let strides = [request.row_bytes];
    let boxes = [request.box_columns, request.box_rows];
    let steps = [1, 1];
    // SAFETY: `map` has the size and alignment of a CUtensorMap; the arrays have `rank` (2) and `rank - 1` entries.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            std::ptr::from_mut(map).cast(),
            element,
            2,
            request.base.0 as *mut _,
            dimensions.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
}

const _: () = assert!(size_of::<TensorMap>() == size_of::<sys::CUtensorMap>());
