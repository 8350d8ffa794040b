//! What a cubin says about itself, read from the bytes that will be shipped: machine, architecture, symbols.

use anyhow::{Context, Result, bail, ensure};
use object::elf;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};

/// ELF machine number of NVIDIA's GPUs.
const EM_CUDA: u16 = 190;
/// Version of the ELF ABI that CUDA 13 writes.
const ABI: u8 = 8;
/// In that version, flags hold the architecture number here...
const ARCHITECTURE_SHIFT: u32 = 8;
/// ...and whether the code uses what only this architecture has (`sm_90a`).
const SPECIFIC: u32 = 0x8;

/// Holds a cubin against the target's architecture and finds the kernel in it.
pub(crate) fn check(bytes: &[u8], target: &str, symbol: &str) -> Result<()> {
    let wanted = match target {
        "sm90" => 90,
        other => bail!("no ELF rules for target {other}"),
    };
    let header = elf::FileHeader64::<object::LittleEndian>::parse(bytes).context("not an ELF file")?;
    let endian = header.endian()?;
    let machine = header.e_machine(endian);
    ensure!(machine == EM_CUDA, "ELF machine is {machine}, not {EM_CUDA} (CUDA)");
    let abi = header.e_ident().abi_version;
    ensure!(abi == ABI, "ELF ABI version is {abi}; CUDA 13.0 writes {ABI}, so another assembler made it");
    let flags = header.e_flags(endian);
    let architecture = (flags >> ARCHITECTURE_SHIFT) & 0xff;
    ensure!(architecture == wanted, "code is for sm_{architecture}, not sm_{wanted}");
    ensure!(flags & SPECIFIC != 0, "code is for sm_{wanted}, not sm_{wanted}a");
    let sections = header.sections(endian, bytes)?;
    let symbols = sections.symbols(endian, bytes, elf::SHT_SYMTAB)?;
    let found = symbols.iter().any(|entry| {
        entry.st_type() == elf::STT_FUNC
            && entry.st_bind() == elf::STB_GLOBAL
            && entry.name(endian, symbols.strings()).is_ok_and(|name| name == symbol.as_bytes())
    });
    ensure!(found, "no function {symbol} in its symbols");
    let code = format!(".text.{symbol}");
    let (_, section) =
        sections.section_by_name(endian, code.as_bytes()).with_context(|| format!("no section {code}"))?;
    ensure!(section.sh_size(endian) > 0, "section {code} is empty");
    Ok(())
}
