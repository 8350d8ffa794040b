//! Random chunks, shared prefixes, preemptions and page reuse: every sampled token is the one that the hash of the
//! sequence's own tokens says.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use backend_null::distribution::{expected, mix};
use support::{Bench, Draft, PAGE_TOKENS, VOCAB};

struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = mix(self.0);
        (self.0 % bound as u64) as usize
    }
}

#[derive(Default)]
struct Sequence {
    tokens: Vec<u32>,
    prompt_len: usize,
    computed: usize,
    pages: Vec<u32>,
}

struct Host {
    bench: Bench,
    noise: Noise,
    rows: [Option<Sequence>; 4],
    holders: [u32; 8],
    checked: usize,
    shared: usize,
    preempted: usize,
}

const PAGE: usize = PAGE_TOKENS as usize;

impl Host {
    fn free_page(&mut self) -> Option<u32> {
        let start = self.noise.below(8);
        let page = (0..8).map(|step| (start + step) % 8).find(|page| self.holders[*page] == 0)?;
        self.holders[page] += 1;
        Some(page as u32)
    }

    /// A prompt that may begin with another row's first page.
    fn bind(&mut self, row: usize, draft: Draft) -> Draft {
        let mut sequence = Sequence::default();
        let other = self.noise.below(4);
        if let Some(donor) = &self.rows[other]
            && donor.computed >= PAGE
        {
            sequence.tokens.extend_from_slice(&donor.tokens[..PAGE]);
            sequence.pages.push(donor.pages[0]);
            sequence.computed = PAGE;
            self.holders[donor.pages[0] as usize] += 1;
            self.shared += 1;
        }
        for _ in 0..1 + self.noise.below(6) {
            sequence.tokens.push(self.noise.below(VOCAB as usize) as u32);
        }
        sequence.prompt_len = sequence.tokens.len();
        let draft = draft.bind(row as u32);
        let draft =
            if sequence.pages.is_empty() { draft } else { draft.pages(row as u32, 0, &sequence.pages) };
        self.rows[row] = Some(sequence);
        draft
    }

    fn release(&mut self, row: usize) -> Sequence {
        let sequence = self.rows[row].take().unwrap();
        sequence.pages.iter().for_each(|page| self.holders[*page as usize] -= 1);
        sequence
    }

    /// The next chunk of a row and where it ends; no chunk when no page is left for it.
    fn advance(&mut self, row: usize, mut draft: Draft) -> (Draft, Option<usize>) {
        let (computed, known) = self.rows[row].as_ref().map(|it| (it.computed, it.tokens.len())).unwrap();
        let end = computed + 1 + self.noise.below((known - computed).min(16));
        while self.rows[row].as_ref().unwrap().pages.len() * PAGE < end {
            let Some(page) = self.free_page() else { return (draft, None) };
            let pages = &mut self.rows[row].as_mut().unwrap().pages;
            draft = draft.pages(row as u32, pages.len() as u32, &[page]);
            pages.push(page);
        }
        let sequence = self.rows[row].as_ref().unwrap();
        let index = (end == known).then_some((known - sequence.prompt_len) as u32);
        (draft.part(row as u32, computed as u32, &sequence.tokens[computed..end], index), Some(end))
    }

    fn turn(&mut self) {
        let row = self.noise.below(4);
        let mut draft = Draft::new();
        if self.rows[row].as_ref().is_some_and(|it| it.tokens.len() >= 20)
            || self.noise.below(12) == 0 && self.rows[row].is_some()
        {
            self.release(row);
            draft = draft.release(row as u32);
        }
        if self.rows[row].is_none() {
            draft = self.bind(row, draft);
        }
        let (draft, end) = self.advance(row, draft);
        let output = self.bench.output(draft);
        let Some(end) = end else { return self.preempt() };
        let sequence = self.rows[row].as_mut().unwrap();
        sequence.computed = end;
        if end == sequence.tokens.len() {
            assert_eq!(output.tokens[0], expected(&sequence.tokens, VOCAB), "{:?}", sequence.tokens);
            sequence.tokens.push(output.tokens[0]);
            self.checked += 1;
        }
    }

    /// Out of pages: takes some row's pages back; its sequence starts again later, in other pages.
    fn preempt(&mut self) {
        let bound: Vec<usize> = (0..4).filter(|row| self.rows[*row].is_some()).collect();
        let row = bound[self.noise.below(bound.len())];
        let sequence = self.release(row);
        let draft = Draft::new().release(row as u32).bind(row as u32);
        self.bench.run(draft);
        self.rows[row] = Some(Sequence { computed: 0, pages: Vec::new(), ..sequence });
        self.preempted += 1;
    }
}

#[test]
fn tokens_do_not_depend_on_the_schedule() {
    let mut host = Host {
        bench: Bench::new("{}"),
        noise: Noise(7),
        rows: Default::default(),
        holders: [0; 8],
        checked: 0,
        shared: 0,
        preempted: 0,
    };
    for _ in 0..20_000 {
        host.turn();
    }
    let Host { checked, shared, preempted, .. } = host;
    assert!(
        checked > 1000 && shared > 200 && preempted > 200,
        "{checked} checked, {shared} shared, {preempted} preempted"
    );
}
