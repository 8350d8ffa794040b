//! What reaches the driver, and what is refused before it does; the driver is a recorder.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use std::cell::RefCell;
use std::ffi::c_void;

use super::*;
use crate::arguments::Matrix;
use crate::launch::{DevicePointer, MapElement, TensorMap};
use crate::pack::{self, Header, Kernel, Shape};

/// Reads each value behind its pointer as the driver would.
#[derive(Default)]
struct Recorder {
    modules: RefCell<Vec<Vec<u8>>>,
    launches: RefCell<Vec<(u64, Geometry, Vec<u64>)>>,
    maps: RefCell<Vec<TensorMapRequest>>,
}

impl Launcher for Recorder {
    fn load_module(&self, image: &[u8]) -> Result<ModuleHandle, LaunchError> {
        self.modules.borrow_mut().push(image.to_vec());
        Ok(ModuleHandle(self.modules.borrow().len() as u64))
    }

    fn function(&self, module: ModuleHandle, _: &str, shared: u32) -> Result<FunctionHandle, LaunchError> {
        Ok(FunctionHandle(module.0 * 1_000_000 + u64::from(shared)))
    }

    fn encode_tensor_map(&self, request: &TensorMapRequest) -> Result<TensorMap, LaunchError> {
        self.maps.borrow_mut().push(*request);
        Ok(TensorMap([7; 16]))
    }

    unsafe fn launch(
        &self,
        function: FunctionHandle,
        geometry: &Geometry,
        _: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<(), LaunchError> {
        // SAFETY: every place holds at least 8 bytes.
        let values = arguments.iter().map(|value| unsafe { value.cast::<u64>().read() }).collect();
        self.launches.borrow_mut().push((function.0, *geometry, values));
        Ok(())
    }
}

const CONTRACT: Contract =
    Contract { kernel: "k", text: "k(x: *bf16 @16, n: i32 @8, s: f32)", variants: &["A", "B", "C"] };

/// Variants 0 and 1 share their code, 2 was not compiled.
fn file(layout: &str, maps: &[MapShape]) -> Vec<u8> {
    let function = |variant| Function {
        kernel: 0,
        variant,
        shapes: vec![0],
        offset: 0,
        bytes: 4,
        symbol: "k".to_owned(),
        threads: 256,
        shared: 1024 * (variant + 1),
        trailing_pointers: 2,
        dependent: true,
        maps: maps.to_vec(),
    };
    let header = Header {
        target: "sm90".to_owned(),
        architecture: "sm_90a".to_owned(),
        toolchain: Default::default(),
        licences: Vec::new(),
        compiled_dims: Vec::new(),
        shapes: vec![Shape { name: "s".to_owned(), set: "s".to_owned(), dims: Default::default() }],
        kernels: vec![Kernel {
            name: "k".to_owned(),
            contract: CONTRACT.text.to_owned(),
            layout: layout.to_owned(),
        }],
        functions: vec![function(0), function(1)],
        code_bytes: 4,
        code_sha256: pack::sha256(b"code"),
    };
    pack::write(&header, b"code").unwrap()
}

fn with_set(layout: &str, maps: &[MapShape], act: impl FnOnce(&Recorder, &KernelSet)) {
    let (file, recorder) = (file(layout, maps), Recorder::default());
    let pack = Pack::read(&file, "sm90").unwrap();
    let mut loader = Loader::new(&recorder, &pack, 0).unwrap();
    let set = KernelSet::load(&mut loader, CONTRACT).unwrap();
    act(&recorder, &set);
}

fn arguments() -> ArgumentList {
    let mut list = ArgumentList::new("k");
    list.pointer("x", DevicePointer(0x1000), 16).unwrap();
    list.i32("n", -8, 8).unwrap();
    list.f32(1.5).unwrap();
    list
}

fn queue(recorder: &Recorder) -> Queue<'_> {
    Queue { launcher: recorder, stream: StreamHandle(5) }
}

#[test]
fn arguments_arrive_in_order_with_two_null_pointers_behind() {
    with_set("pif", &[], |recorder, set| {
        set.launch(&queue(recorder), [3, 2, 1], 1, &mut arguments()).unwrap();
        let launches = recorder.launches.borrow();
        let (function, geometry, values) = &launches[0];
        assert_eq!(*function, 1_000_000 + 2048);
        let expected = Geometry { grid: [3, 2, 1], block: [256, 1, 1], shared_bytes: 2048, dependent: true };
        assert_eq!(*geometry, expected);
        let words = [0x1000, u64::from((-8_i32).cast_unsigned()), u64::from(1.5_f32.to_bits()), 0, 0];
        assert_eq!(*values, words);
        assert_eq!(recorder.modules.borrow().len(), 1, "equal code is loaded once");
    });
}

#[test]
fn matrix_arrives_as_map_extents_and_strides() {
    let box_shape = MapShape { extent: [64, 32], swizzle: 3 };
    with_set("m", &[box_shape], |recorder, set| {
        let mut list = ArgumentList::new("k");
        let matrix = Matrix { base: DevicePointer(0x100), rows: 10, columns: 40, row_stride: 48 };
        list.matrix("a", matrix, MapElement::Bf16).unwrap();
        set.launch(&queue(recorder), [1, 1, 1], 0, &mut list).unwrap();
        assert_eq!(recorder.launches.borrow()[0].2, [7, 10, 40, 48, 1, 0, 0]);
        let request = recorder.maps.borrow()[0];
        assert_eq!((request.rows, request.columns, request.row_bytes), (10, 40, 96));
        assert_eq!((request.box_rows, request.box_columns, request.swizzle), (64, 32, 3));
    });
}

#[test]
fn broken_promises_are_refused_by_name() {
    let mut list = ArgumentList::new("k");
    let refusals = [
        (list.pointer("x", DevicePointer(0x1008), 16), "argument x is 4104, not a multiple of 16"),
        (list.pointer("x", DevicePointer::NULL, 16), "argument x is null"),
        (list.i32("n", 9, 8), "argument n is 9, not a multiple of 8"),
    ];
    for (refusal, sentence) in refusals {
        let said = refusal.unwrap_err().to_string();
        assert!(said.contains("kernel k") && said.contains(sentence), "{said}");
    }
    list.nullable_pointer("bias", DevicePointer::NULL, 16).unwrap();
    let matrix = Matrix { base: DevicePointer(0x100), rows: 4, columns: 40, row_stride: 44 };
    let said = list.matrix("a", matrix, MapElement::Bf16).unwrap_err().to_string();
    assert!(said.contains("is 44, not a multiple of 8"), "{said}");
}

#[test]
fn impossible_launches_never_reach_the_driver() {
    with_set("pif", &[], |recorder, set| {
        let mut short = ArgumentList::new("k");
        short.pointer("x", DevicePointer(0x1000), 16).unwrap();
        let queue = queue(recorder);
        let refusals = [
            (
                set.launch(&queue, [0, 1, 1], 0, &mut arguments()),
                "grid axis 0 is 0; it takes 1 to 2147483647",
            ),
            (
                set.launch(&queue, [1, 65_536, 1], 0, &mut arguments()),
                "grid axis 1 is 65536; it takes 1 to 65535",
            ),
            (set.launch(&queue, [1, 1, 1], 2, &mut arguments()), "no variant C for this shape"),
            (set.launch(&queue, [1, 1, 1], 0, &mut short), "takes arguments pif, was given p"),
        ];
        for (refusal, sentence) in refusals {
            let said = refusal.unwrap_err().to_string();
            assert!(said.contains(sentence), "{said}");
        }
        assert!(recorder.launches.borrow().is_empty());
        assert!(set.has(0) && !set.has(2));
    });
}

#[test]
fn pack_of_another_manifest_is_refused() {
    let file = file("pif", &[]);
    let pack = Pack::read(&file, "sm90").unwrap();
    check(&pack, &[CONTRACT], "sm90").unwrap();
    let changed = Contract { text: "k(x: *bf16 @16)", ..CONTRACT };
    let said = check(&pack, &[changed], "sm90").unwrap_err().to_string();
    assert!(
        said.contains("the plugin calls k(x: *bf16 @16); run cargo xtask build --backend sm90"),
        "{said}"
    );
    let unknown = Contract { kernel: "other", ..CONTRACT };
    let said = check(&pack, &[unknown], "sm90").unwrap_err().to_string();
    assert!(said.contains("it has no kernel other"), "{said}");
}

#[test]
fn pack_of_another_toolchain_is_named() {
    let file = file("pif", &[]);
    let mut pack = Pack::read(&file, "sm90").unwrap();
    pack.header.toolchain.insert("triton".to_owned(), "3.8.0".to_owned());
    check_toolchain(&pack, &[("triton", "3.8.0")], "sm90").unwrap();
    for (wanted, part) in [
        (("triton", "3.9.0"), "made with triton 3.8.0, the plugin wants 3.9.0"),
        (("nvcc", "13"), "made with nvcc none, the plugin wants 13"),
    ] {
        let said = check_toolchain(&pack, &[wanted], "sm90").unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
}
