//! Gathers what was compiled into one `kernels.pack`, each distinct code once.

use super::index::{Index, check_dims, compiled_dims};
use super::{elf, folder};
use anyhow::{Context, Result, ensure};
use m3_gpu::pack::{Function, Header, Kernel, Pack, sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Our own sources, Triton's language library, and what compilers link in as object code.
const LICENCES: [&str; 3] = [
    "Apache-2.0",
    "MIT (Triton's language library)",
    "CUDA EULA (device functions of libdevice and headers, as code)",
];
/// Shared memory that a block may use on Hopper, in bytes.
const SHARED_LIMIT: u64 = 227 * 1024;

/// Checks every cubin, writes the pack, reads it back, and returns its path.
pub(super) fn write(root: &Path, index: &Index) -> Result<PathBuf> {
    let target = &index.description.target;
    let (header, code) = gather(index)?;
    let file = m3_gpu::pack::write(&header, &code)?;
    let pack = Pack::read(&file, target)?;
    ensure!(pack.code()? == code, "the pack does not read back");
    let path = folder(root).join(target).join("kernels.pack");
    std::fs::create_dir_all(path.parent().context("the pack has no folder")?)?;
    std::fs::write(&path, &file).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}\n{} ({:.2} MB, {:.2} MB unpacked)", pack.describe(), path.display(), mb(&file), mb(&code));
    Ok(path)
}

fn mb(bytes: &[u8]) -> f64 {
    bytes.len() as f64 / 1e6
}

fn gather(index: &Index) -> Result<(Header, Vec<u8>)> {
    let description = &index.description;
    let dims = compiled_dims(&description.rows);
    for shape in &description.shapes {
        check_dims(&shape.dims, &dims, &shape.name)?;
    }
    let kernels = description
        .rows
        .iter()
        .map(|row| Ok(Kernel { name: row.name.clone(), contract: row.contract()?, layout: row.layout()? }));
    let kernels: Vec<Kernel> = kernels.collect::<Result<_>>()?;
    let (functions, code) = functions(index)?;
    let header = Header {
        target: description.target.clone(),
        architecture: format!("{}a", description.target.replace("sm", "sm_")),
        toolchain: description.toolchain.clone(),
        licences: LICENCES.map(str::to_owned).to_vec(),
        compiled_dims: dims,
        shapes: description.shapes.clone(),
        kernels,
        functions,
        code_bytes: code.len() as u64,
        code_sha256: sha256(&code),
    };
    Ok((header, code))
}

fn functions(index: &Index) -> Result<(Vec<Function>, Vec<u8>)> {
    let description = &index.description;
    let assembler = description.toolchain.get("nvidia-cuda-nvcc").context("no nvidia-cuda-nvcc is pinned")?;
    let (mut functions, mut code, mut places) = (Vec::new(), Vec::new(), HashMap::new());
    for instance in &index.instances {
        let named = || format!("kernel {}, variant {}", instance.kernel, instance.variant);
        let bytes = std::fs::read(&instance.cubin)
            .with_context(|| format!("cannot read the cubin of {}", named()))?;
        let kernel = description.rows.iter().position(|row| row.name == instance.kernel);
        let kernel = kernel.with_context(|| format!("{} has no row", named()))?;
        let wanted = elf::Wanted {
            target: &description.target,
            assembler,
            symbol: &instance.symbol,
            threads: instance.threads,
            parameters: &parameters(&description.rows[kernel].layout()?, instance.trailing_pointers),
        };
        let shared = u64::from(instance.shared) + elf::check(&bytes, &wanted).with_context(named)?;
        ensure!(
            shared <= SHARED_LIMIT,
            "{} uses {shared} bytes of shared memory; {SHARED_LIMIT} fit",
            named()
        );
        let shape = |name: &String| {
            let found = description.shapes.iter().position(|shape| shape.name == *name);
            found.map(|index| index as u32).with_context(|| format!("{} names shape {name}", named()))
        };
        let offset = *places.entry(sha256(&bytes)).or_insert_with(|| {
            let offset = code.len() as u64;
            code.extend_from_slice(&bytes);
            offset
        });
        functions.push(Function {
            kernel: kernel as u32,
            variant: instance.variant,
            shapes: instance.shapes.iter().map(shape).collect::<Result<_>>()?,
            offset,
            bytes: bytes.len() as u64,
            symbol: instance.symbol.clone(),
            threads: instance.threads,
            shared: instance.shared,
            trailing_pointers: instance.trailing_pointers,
            dependent: instance.dependent,
            maps: instance.maps.clone(),
        });
    }
    Ok((functions, code))
}

/// Bytes of each parameter that a launch of this layout fills.
fn parameters(layout: &str, trailing_pointers: u32) -> Vec<u32> {
    let sizes = |letter| match letter {
        'm' => vec![128, 4, 4, 8, 8],
        'i' | 'u' | 'f' => vec![4],
        _ => vec![8],
    };
    layout.chars().flat_map(sizes).chain((0..trailing_pointers).map(|_| 8)).collect()
}
