//! Kernels of a pack, loaded for one shape: what the generated stubs of a backend call.
//!
//! A stub knows names, argument types and variants; the pack knows bytes, symbols and resources. [`KernelSet::load`]
//! compares the two, because a launch with another layout than the code was compiled for reads foreign memory.

use std::collections::HashMap;

use crate::arguments::ArgumentList;
use crate::launch::{
    FunctionHandle, Geometry, LaunchError, Launcher, ModuleHandle, StreamHandle, TensorMapRequest,
};
use crate::pack::{Function, MapShape, Pack, PackError};

/// Most blocks along x, y and z.
const GRID_LIMITS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Where a launch goes.
#[derive(Clone, Copy)]
pub struct Queue<'a> {
    pub launcher: &'a dyn Launcher,
    pub stream: StreamHandle,
}

/// What a stub was generated from; a pack must say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    pub kernel: &'static str,
    /// Arguments and variants in words.
    pub text: &'static str,
    pub variants: &'static [&'static str],
}

/// Compares what a plugin's stubs expect with what a pack holds; no device is needed. `target` names the backend in the
/// advice.
pub fn check(pack: &Pack<'_>, contracts: &[Contract], target: &str) -> Result<(), PackError> {
    let foreign = |sentence: String| PackError::Foreign(sentence, target.to_owned());
    for contract in contracts {
        match pack.header.kernels.iter().find(|kernel| kernel.name == contract.kernel) {
            None => return Err(foreign(format!("it has no kernel {}", contract.kernel))),
            Some(found) if found.contract != contract.text => {
                return Err(foreign(format!(
                    "it holds {}, the plugin calls {}",
                    found.contract, contract.text
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Compares the tools that made a pack with those that a plugin's stubs were generated for.
pub fn check_toolchain(pack: &Pack<'_>, wanted: &[(&str, &str)], target: &str) -> Result<(), PackError> {
    let found = &pack.header.toolchain;
    let differing = wanted.iter().find(|(tool, version)| found.get(*tool).is_none_or(|made| made != version));
    match differing {
        None => Ok(()),
        Some((tool, version)) => {
            let made = found.get(*tool).map_or("none", String::as_str);
            let sentence = format!("it was made with {tool} {made}, the plugin wants {version}");
            Err(PackError::Foreign(sentence, target.to_owned()))
        }
    }
}

/// Modules of one pack on one device, each loaded once.
pub struct Loader<'a> {
    launcher: &'a dyn Launcher,
    pack: &'a Pack<'a>,
    code: Vec<u8>,
    shape: u32,
    modules: HashMap<u64, ModuleHandle>,
}

impl<'a> Loader<'a> {
    /// `shape` is what [`Pack::covers`] answered.
    pub fn new(launcher: &'a dyn Launcher, pack: &'a Pack<'a>, shape: usize) -> Result<Self, LaunchError> {
        let code = pack.code().map_err(|error| LaunchError::Device(error.to_string()))?;
        Ok(Loader { launcher, pack, code, shape: shape as u32, modules: HashMap::new() })
    }

    fn function(&mut self, function: &Function) -> Result<FunctionHandle, LaunchError> {
        let module = match self.modules.get(&function.offset) {
            Some(module) => *module,
            None => {
                let image = &self.code[function.offset as usize..][..function.bytes as usize];
                let module = self.launcher.load_module(image)?;
                *self.modules.entry(function.offset).or_insert(module)
            }
        };
        self.launcher.function(module, &function.symbol, function.shared)
    }
}

/// One variant of one kernel, ready to launch.
#[derive(Clone, Debug)]
struct Loaded {
    function: FunctionHandle,
    threads: u32,
    shared: u32,
    trailing_pointers: u32,
    dependent: bool,
    maps: Vec<MapShape>,
}

/// All variants of one kernel for the loaded shape.
#[derive(Clone, Debug)]
pub struct KernelSet {
    contract: Contract,
    layout: String,
    variants: Vec<Option<Loaded>>,
}

impl KernelSet {
    /// Loads every variant that the pack has for the loader's shape. A kernel that was not compiled for this shape
    /// loads as nothing, and launching it is an error that says so.
    pub fn load(loader: &mut Loader<'_>, contract: Contract) -> Result<Self, LaunchError> {
        let pack = loader.pack;
        let refuse = |sentence: String| LaunchError::Pack { kernel: contract.kernel.to_owned(), sentence };
        let index = pack
            .header
            .kernels
            .iter()
            .position(|kernel| kernel.name == contract.kernel && kernel.contract == contract.text)
            .ok_or_else(|| refuse(format!("the pack does not hold {}", contract.text)))?;
        let mut variants = vec![None; contract.variants.len().max(1)];
        let shape = loader.shape;
        for function in &pack.header.functions {
            if function.kernel as usize != index || !function.shapes.contains(&shape) {
                continue;
            }
            let place = variants
                .get_mut(function.variant as usize)
                .ok_or_else(|| refuse(format!("the pack has a variant {}", function.variant)))?;
            *place = Some(Loaded {
                function: loader.function(function)?,
                threads: function.threads,
                shared: function.shared,
                trailing_pointers: function.trailing_pointers,
                dependent: function.dependent,
                maps: function.maps.clone(),
            });
        }
        Ok(KernelSet { contract, layout: pack.header.kernels[index].layout.clone(), variants })
    }

    /// Whether this variant was compiled for the loaded shape.
    pub fn has(&self, variant: usize) -> bool {
        self.variants.get(variant).is_some_and(Option::is_some)
    }

    /// Puts one launch into the queue. `arguments` was filled by the stub whose contract this set was loaded with.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: usize,
        arguments: &mut ArgumentList,
    ) -> Result<(), LaunchError> {
        let kernel = self.contract.kernel;
        let loaded = self.variants.get(variant).and_then(Option::as_ref).ok_or_else(|| {
            let name = self.contract.variants.get(variant).copied().unwrap_or("(its only one)");
            LaunchError::NoVariant { kernel, variant: name.to_owned() }
        })?;
        for (axis, (value, most)) in grid.into_iter().zip(GRID_LIMITS).enumerate() {
            if value == 0 || value > most {
                return Err(LaunchError::Grid { kernel, axis, value, most });
            }
        }
        if arguments.layout() != self.layout.as_bytes() {
            let given = String::from_utf8_lossy(arguments.layout());
            let sentence = format!("takes arguments {}, was given {given}", self.layout);
            return Err(LaunchError::Pack { kernel: kernel.to_owned(), sentence });
        }
        encode_maps(queue.launcher, loaded, arguments)?;
        for _ in 0..loaded.trailing_pointers {
            arguments.trailing_pointer()?;
        }
        let geometry = Geometry {
            grid,
            block: [loaded.threads, 1, 1],
            shared_bytes: loaded.shared,
            dependent: loaded.dependent,
        };
        arguments.with_pointers(|pointers| {
            // SAFETY: the function was loaded by this launcher; its parameters have the pack's layout, which the
            // arguments were just compared with, then the trailing pointers; each place holds 8 bytes or a whole map.
            unsafe { queue.launcher.launch(loaded.function, &geometry, queue.stream, pointers) }
        })
    }
}

/// Describes every matrix to the copy engine, in the box that the code was compiled for.
fn encode_maps(
    launcher: &dyn Launcher,
    loaded: &Loaded,
    arguments: &mut ArgumentList,
) -> Result<(), LaunchError> {
    let mut matrices = [None; crate::arguments::MOST_MATRICES];
    for (place, matrix) in matrices.iter_mut().zip(arguments.matrices()) {
        *place = Some(matrix);
    }
    let given = matrices.iter().flatten().count();
    if given != loaded.maps.len() {
        let sentence = format!("its code takes {} matrices, {given} were given", loaded.maps.len());
        return Err(LaunchError::Pack { kernel: arguments.kernel().to_owned(), sentence });
    }
    for (index, ((matrix, element), shape)) in matrices.iter().flatten().zip(&loaded.maps).enumerate() {
        let map = launcher.encode_tensor_map(&TensorMapRequest {
            base: matrix.base,
            element: *element,
            rows: u64::from(matrix.rows.unsigned_abs()),
            columns: u64::from(matrix.columns.unsigned_abs()),
            row_bytes: matrix.row_stride.unsigned_abs() * element.bytes(),
            box_rows: shape.extent[0],
            box_columns: shape.extent[1],
            swizzle: shape.swizzle,
        })?;
        arguments.set_map(index, map);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
