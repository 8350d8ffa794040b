//! One good file, and each way in which a file can be the wrong one. The files are put together here.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use super::{Wanted, check};

const WANTED: Wanted<'_> =
    Wanted { target: "sm90", assembler: "13.0.88", symbol: "k", threads: 128, parameters: &[8, 4] };

/// What one test changes about the good file.
struct File {
    machine: u16,
    abi: u8,
    flags: u32,
    note: &'static str,
    symbol: &'static str,
    code: &'static [u8],
    /// Sizes of parameters, and threads of a block.
    takes: (&'static [u32], u32),
}

fn good() -> File {
    File {
        machine: 190,
        abi: 8,
        flags: 0x0600_5a04,
        note: "ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0Build cuda_13.0\0-v -arch sm_90a \0",
        symbol: "k",
        code: b"\x01\x02",
        takes: (&[8, 4], 128),
    }
}

impl File {
    /// `.nv.info.k`: a flag, the parameters last first as the assembler writes them, the most threads.
    fn attributes(&self) -> Vec<u8> {
        let mut bytes = vec![3, 0x1b, 0xff, 0];
        for (ordinal, size) in self.takes.0.iter().enumerate().rev() {
            bytes.extend([4, 0x17, 12, 0, 0, 0, 0, 0, ordinal as u8, 0, 0, 0]);
            bytes.extend((size << 18 | 0x1f000).to_le_bytes());
        }
        bytes.extend([4, 0x05, 12, 0]);
        bytes.extend([self.takes.1, 1, 1].map(u32::to_le_bytes).concat());
        bytes
    }

    /// A 64-bit little-endian ELF with the sections that a cubin of one kernel has.
    fn bytes(&self) -> Vec<u8> {
        let names = format!(
            "\0.shstrtab\0.strtab\0.symtab\0.note.nv.tkinfo\0.text.{0}\0.nv.shared.{0}\0.nv.info.{0}\0",
            self.symbol
        );
        let place = |name: &str| names.find(name).unwrap() as u32;
        let strings = format!("\0{}\0", self.symbol);
        // Name 1, global function, section 5.
        let symbol =
            [&[0; 24][..], &1_u32.to_le_bytes(), &[0x12, 0], &5_u16.to_le_bytes(), &[0; 16]].concat();
        let attributes = self.attributes();
        let sections: [(u32, u32, u32, &[u8]); 8] = [
            (0, 0, 0, &[]),
            (place(".shstrtab"), 3, 0, names.as_bytes()),
            (place(".strtab"), 3, 0, strings.as_bytes()),
            (place(".symtab"), 2, 2, &symbol),
            (place(".note.nv.tkinfo"), 7, 0, self.note.as_bytes()),
            (place(".text."), 1, 0, self.code),
            (place(".nv.shared."), 8, 0, &[0; 1024 + 400]),
            (place(".nv.info."), 0x7000_0000, 0, &attributes),
        ];
        let (mut body, mut table) = (Vec::new(), Vec::new());
        for (name, kind, link, data) in sections {
            let entry = if kind == 2 { 24_u64 } else { 0 };
            table.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
            table.extend([0, 0, 64 + body.len() as u64, data.len() as u64].map(u64::to_le_bytes).concat());
            table.extend([link.to_le_bytes(), 1_u32.to_le_bytes()].concat());
            table.extend([1, entry].map(u64::to_le_bytes).concat());
            body.extend_from_slice(data);
        }
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0x41, self.abi, 0, 0, 0, 0, 0, 0, 0];
        file.extend([2_u16.to_le_bytes(), self.machine.to_le_bytes()].concat());
        file.extend(1_u32.to_le_bytes());
        file.extend([0, 0, 64 + body.len() as u64].map(u64::to_le_bytes).concat());
        file.extend(self.flags.to_le_bytes());
        file.extend([64_u16, 0, 0, 64, 8, 1].map(u16::to_le_bytes).concat());
        [file, body, table].concat()
    }
}

#[test]
fn good_cubin_tells_its_static_shared_memory() {
    assert_eq!(check(&good().bytes(), &WANTED).unwrap(), 400);
}

#[test]
fn every_wrong_file_is_refused_with_the_reason() {
    let plain = "ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0-arch sm_90 \0";
    let newer = "ptxas\0Cuda compilation tools, release 13.4, V13.4.59\0-arch sm_90a \0";
    for (file, part) in [
        (File { machine: 62, ..good() }, "ELF machine is 62"),
        (File { abi: 7, ..good() }, "ABI version is 7"),
        (File { flags: 0x0600_6402, ..good() }, "code is for sm_100, not sm_90"),
        (File { note: plain, ..good() }, "not for sm_90a"),
        (File { note: newer, ..good() }, "assembler is not 13.0.88"),
        (File { symbol: "other", ..good() }, "no function k"),
        (
            File { takes: (&[8, 4, 8], 128), ..good() },
            "parameters have [8, 4, 8] bytes; the row's arguments make [8, 4]",
        ),
        (File { takes: (&[8, 4], 64), ..good() }, "launched with 128 threads, was compiled for 64"),
        (File { code: b"", ..good() }, ".text.k is empty"),
    ] {
        let refusal = format!("{:#}", check(&file.bytes(), &WANTED).unwrap_err());
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    assert!(check(b"no ELF at all", &WANTED).is_err());
}
