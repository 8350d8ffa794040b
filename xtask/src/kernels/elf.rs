//! What a cubin says about itself, read from the bytes that will be shipped: machine, architecture, assembler, symbol.
//!
//! Parameters are read as well: they are what a launch must match byte for byte, whatever the source was.
//! The architecture-specific form (`sm_90a`) and the assembler's version stand nowhere in the ELF flags, only in the
//! note that the assembler leaves with its own command line.

use anyhow::{Context, Result, bail, ensure};
use object::elf::{FileHeader64, SHT_SYMTAB, STB_GLOBAL, STT_FUNC};
use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable, Sym as _};

type Elf = FileHeader64<object::LittleEndian>;

/// ELF machine number of NVIDIA's GPUs.
const EM_CUDA: u16 = 190;
/// Version of the ELF ABI that CUDA 13 writes.
const ABI: u8 = 8;
/// In that version, flags hold the architecture's number here.
const ARCHITECTURE_SHIFT: u32 = 8;
const TOOL_NOTE: &str = ".note.nv.tkinfo";
/// What the assembler books in every block that uses shared memory, beside the kernel's own.
const RESERVED_SHARED: u64 = 1024;

/// Format and attributes of `.nv.info` sections, as cuobjdump names them: EIFMT_SVAL, EIATTR_KPARAM_INFO,
/// EIATTR_MAX_THREADS, EIATTR_REQNTID.
const SIZED: u8 = 4;
const PARAMETER: u8 = 0x17;
const MOST_THREADS: u8 = 0x05;
const EXACT_THREADS: u8 = 0x10;
/// A parameter's size is in the upper bits of its last word.
const PARAMETER_SIZE_SHIFT: u32 = 18;

/// What a cubin must be.
pub(super) struct Wanted<'a> {
    /// As `--backend` takes it.
    pub(super) target: &'a str,
    /// Version of the pinned assembler, e.g. `13.0.88`.
    pub(super) assembler: &'a str,
    pub(super) symbol: &'a str,
    /// Threads of a block that it will be launched with.
    pub(super) threads: u32,
    /// Bytes of each parameter, in order.
    pub(super) parameters: &'a [u32],
}

/// Holds a cubin against what it must be; returns the static shared memory of a block, in bytes.
pub(super) fn check(bytes: &[u8], wanted: &Wanted<'_>) -> Result<u64> {
    let number = match wanted.target {
        "sm90" => 90,
        other => bail!("no ELF rules for target {other}"),
    };
    let header = Elf::parse(bytes).context("not an ELF file")?;
    let endian = header.endian()?;
    let machine = header.e_machine(endian);
    ensure!(machine == EM_CUDA, "ELF machine is {machine}, not {EM_CUDA} (CUDA)");
    let abi = header.e_ident().abi_version;
    ensure!(abi == ABI, "ELF ABI version is {abi}; CUDA 13.0 writes {ABI}");
    let architecture = (header.e_flags(endian) >> ARCHITECTURE_SHIFT) & 0xff;
    ensure!(architecture == number, "code is for sm_{architecture}, not sm_{number}");
    let sections = header.sections(endian, bytes)?;
    assembled(&sections, bytes, number, wanted.assembler)?;
    has_function(&sections, bytes, wanted.symbol)?;
    let information = format!(".nv.info.{}", wanted.symbol);
    let (_, information) = sections
        .section_by_name(endian, information.as_bytes())
        .with_context(|| format!("no section {information}"))?;
    launchable(information.data(endian, bytes)?, wanted)?;
    let shared =
        sections.section_by_name(object::LittleEndian, format!(".nv.shared.{}", wanted.symbol).as_bytes());
    let booked = shared.map_or(0, |(_, section)| section.sh_size(object::LittleEndian));
    Ok(booked.saturating_sub(RESERVED_SHARED))
}

fn assembled(sections: &SectionTable<'_, Elf>, bytes: &[u8], number: u32, assembler: &str) -> Result<()> {
    let endian = object::LittleEndian;
    let (_, note) = sections
        .section_by_name(endian, TOOL_NOTE.as_bytes())
        .with_context(|| format!("no section {TOOL_NOTE}: not made by NVIDIA's assembler"))?;
    let note = String::from_utf8_lossy(note.data(endian, bytes)?).into_owned();
    let said = || note.split('\0').filter(|part| part.starts_with(['C', '-'])).collect::<Vec<_>>().join("; ");
    let words: Vec<&str> = note.split(['\0', ' ', ',']).collect();
    let specific = format!("sm_{number}a");
    ensure!(words.contains(&specific.as_str()), "code is not for {specific}: it was made by {}", said());
    let version = format!("V{assembler}");
    ensure!(words.contains(&version.as_str()), "assembler is not {assembler}: it was made by {}", said());
    Ok(())
}

fn has_function(sections: &SectionTable<'_, Elf>, bytes: &[u8], symbol: &str) -> Result<()> {
    let endian = object::LittleEndian;
    let symbols = sections.symbols(endian, bytes, SHT_SYMTAB)?;
    let found = symbols.iter().any(|entry| {
        entry.st_type() == STT_FUNC
            && entry.st_bind() == STB_GLOBAL
            && entry.name(endian, symbols.strings()).is_ok_and(|name| name == symbol.as_bytes())
    });
    ensure!(found, "no function {symbol} in its symbols");
    let code = format!(".text.{symbol}");
    let (_, section) =
        sections.section_by_name(endian, code.as_bytes()).with_context(|| format!("no section {code}"))?;
    ensure!(section.sh_size(endian) > 0, "section {code} is empty");
    Ok(())
}

/// Compares parameters and threads with the kernel's own attributes.
fn launchable(information: &[u8], wanted: &Wanted<'_>) -> Result<()> {
    let mut sizes = std::collections::BTreeMap::new();
    for (attribute, value) in attributes(information)? {
        match (attribute, value) {
            (PARAMETER, [_, _, _, _, low, high, _, _, rest @ ..]) if rest.len() == 4 => {
                let packed = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
                sizes.insert(u16::from_le_bytes([*low, *high]), packed >> PARAMETER_SIZE_SHIFT);
            }
            (MOST_THREADS | EXACT_THREADS, [a, b, c, d, ..]) => {
                let threads = u32::from_le_bytes([*a, *b, *c, *d]);
                let fits = if attribute == EXACT_THREADS {
                    wanted.threads == threads
                } else {
                    wanted.threads <= threads
                };
                ensure!(fits, "is launched with {} threads, was compiled for {threads}", wanted.threads);
            }
            _ => {}
        }
    }
    let found: Vec<u32> = sizes.into_values().collect();
    ensure!(
        found == wanted.parameters,
        "its parameters have {found:?} bytes; the row's arguments make {:?}",
        wanted.parameters
    );
    Ok(())
}

/// Attributes with a sized value: one byte of format, one of attribute, two of size or value, then the value.
fn attributes(mut rest: &[u8]) -> Result<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while let [format, attribute, low, high, behind @ ..] = rest {
        rest = behind;
        if *format == SIZED {
            let size = usize::from(u16::from_le_bytes([*low, *high]));
            let (value, behind) = rest.split_at_checked(size).context("kernel attributes end in a value")?;
            found.push((*attribute, value));
            rest = behind;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
