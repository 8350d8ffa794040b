//! The books of the page cache: sharing, eviction order, twins, and nothing lost.

use super::*;

const PAGE: usize = 4;

fn key(tokens: &[u32]) -> PrefixKey<'_> {
    PrefixKey { salt: None, tokens, media: &[] }
}

fn tokens(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

/// A sequence that has computed all of `tokens`.
fn computed(cache: &mut PageCache, tokens: &[u32]) -> Lease {
    let num_pages = tokens.len().div_ceil(PAGE);
    let mut lease = cache.lease(key(tokens), tokens.len() - 1, num_pages).unwrap();
    cache.publish(&mut lease, key(tokens));
    lease
}

fn counts(cache: &PageCache) -> (usize, usize, usize) {
    let PageCounts { free, leased, cached, total } = cache.counts();
    assert_eq!(free + leased + cached, total);
    (free, leased, cached)
}

#[test]
fn only_full_pages_are_shared_and_one_token_is_left_to_compute() {
    let mut cache = PageCache::new(10, PAGE, true);
    let prompt = tokens(0..10);
    let first = computed(&mut cache, &prompt);
    assert_eq!(first.num_matched(), 0);
    let second = cache.lease(key(&prompt), 9, 3).unwrap();
    assert_eq!(second.num_matched(), 2, "the third page is not full");
    assert_eq!(first.pages()[..2], second.pages()[..2]);
    assert_ne!(first.pages()[2], second.pages()[2]);
    let short = cache.lease(key(&prompt[..8]), 7, 2).unwrap();
    assert_eq!(short.num_matched(), 1, "the last token of the second page must be computed");
    cache.audit([&first, &second, &short].into_iter()).unwrap();
    [first, second, short].into_iter().for_each(|lease| cache.release(lease));
    assert_eq!(counts(&cache), (8, 0, 2));
    assert!(cache.flush());
    assert_eq!(counts(&cache), (10, 0, 0));
}

#[test]
fn salts_and_differing_tokens_do_not_meet() {
    let mut cache = PageCache::new(20, PAGE, true);
    let prompt = tokens(0..9);
    let plain = computed(&mut cache, &prompt);
    for salt in [&b""[..], b"a"] {
        let salted = PrefixKey { salt: Some(salt), tokens: &prompt, media: &[] };
        let mut lease = cache.lease(salted, 8, 3).unwrap();
        assert_eq!(lease.num_matched(), 0);
        cache.publish(&mut lease, salted);
        cache.release(lease);
        let again = cache.lease(salted, 8, 3).unwrap();
        assert_eq!(again.num_matched(), 2);
        cache.release(again);
    }
    let mut other = prompt.clone();
    other[1] = 99;
    let lease = cache.lease(key(&other), 8, 3).unwrap();
    assert_eq!(lease.num_matched(), 0, "the second page is equal but its prefix is not");
    cache.release(lease);
    cache.release(plain);
    assert!(cache.flush());
}

#[test]
fn leaves_are_evicted_oldest_first_and_held_pages_never() {
    let mut cache = PageCache::new(6, PAGE, true);
    let (old, young) = (tokens(0..8), tokens(100..108));
    let lease = computed(&mut cache, &old);
    cache.release(lease);
    let held = computed(&mut cache, &young);
    let pressing = cache.lease(key(&[7; 12]), 0, 3).unwrap();
    assert_eq!(counts(&cache), (0, 5, 1));
    assert_eq!(cache.num_evicted(), 1);
    let again = cache.lease(key(&old), 8, 1).unwrap();
    assert_eq!(again.num_matched(), 1, "the first page outlives the one after it");
    assert!(cache.lease(key(&[8; 4]), 0, 1).is_none(), "everything is held");
    cache.audit([&held, &pressing, &again].into_iter()).unwrap();
    [held, pressing, again].into_iter().for_each(|lease| cache.release(lease));
    cache.audit(std::iter::empty()).unwrap();
}

#[test]
fn a_lease_that_does_not_fit_changes_nothing() {
    let mut cache = PageCache::new(4, PAGE, true);
    let prompt = tokens(0..8);
    let lease = computed(&mut cache, &prompt);
    cache.release(lease);
    assert_eq!(counts(&cache), (2, 0, 2));
    let longer = tokens(0..20);
    assert!(cache.lease(key(&longer), 19, 5).is_none());
    assert_eq!(counts(&cache), (2, 0, 2));
    assert_eq!(cache.num_evicted(), 0);
    let fits = cache.lease(key(&longer), 19, 4).unwrap();
    assert_eq!(fits.num_matched(), 2);
    cache.release(fits);
}

#[test]
fn equal_prefixes_computed_at_once_keep_their_tails() {
    let mut cache = PageCache::new(12, PAGE, true);
    let (left, right) = (tokens(0..12), [tokens(0..8), tokens(50..54)].concat());
    let mut first = cache.lease(key(&left), 11, 3).unwrap();
    let mut second = cache.lease(key(&right), 11, 3).unwrap();
    cache.publish(&mut first, key(&left));
    cache.publish(&mut second, key(&right));
    cache.audit([&first, &second].into_iter()).unwrap();
    cache.release(first);
    // The second one's tail hangs below pages of the first, which it must hold.
    let PageCounts { cached, .. } = cache.counts();
    assert_eq!(cached, 1, "only the first one's own tail can be evicted");
    cache.audit([&second].into_iter()).unwrap();
    cache.release(second);
    assert_eq!(counts(&cache), (8, 0, 4), "two shared pages and two tails");
    let again = cache.lease(key(&right), 11, 3).unwrap();
    assert_eq!(again.num_matched(), 2);
    cache.release(again);
    assert!(cache.flush());
}

#[test]
fn without_sharing_nothing_is_cached() {
    let mut cache = PageCache::new(4, PAGE, false);
    let prompt = tokens(0..8);
    let lease = computed(&mut cache, &prompt);
    cache.release(lease);
    assert_eq!(counts(&cache), (4, 0, 0));
}

#[test]
#[should_panic(expected = "released more often than it was held")]
fn a_double_release_is_noticed() {
    let mut pool = PagePool::new(2);
    let page = pool.take().unwrap();
    pool.release(page);
    pool.release(page);
}

#[test]
fn a_miss_says_why() {
    let mut cache = PageCache::new(6, PAGE, true);
    let ask = |cache: &mut PageCache, tokens: &[u32]| {
        let before = cache.misses();
        let mut lease = cache.lease(key(tokens), tokens.len() - 1, tokens.len().div_ceil(PAGE)).unwrap();
        cache.note_miss(key(&tokens[..tokens.len() - 1]), lease.num_matched());
        cache.publish(&mut lease, key(tokens));
        cache.release(lease);
        let after = cache.misses();
        let names = ["off", "short", "new", "diverged", "evicted"];
        let of = |misses: Misses| [misses.off, misses.short, misses.new, misses.diverged, misses.evicted];
        let grown = names.into_iter().zip(of(before)).zip(of(after)).filter(|((_, old), new)| old != new);
        grown.map(|((name, _), _)| name).collect::<Vec<_>>()
    };
    let first = tokens(0..13);
    assert_eq!(ask(&mut cache, &tokens(0..3)), ["short"]);
    assert_eq!(ask(&mut cache, &first), ["new"]);
    assert_eq!(ask(&mut cache, &first), [""; 0], "nothing was missed");
    let other: Vec<u32> = (0..8).chain(50..55).collect();
    assert_eq!(ask(&mut cache, &other), ["diverged"]);
    assert_eq!(ask(&mut cache, &tokens(100..123)), ["new"], "it takes all six pages");
    assert_eq!(ask(&mut cache, &first), ["evicted"]);
    assert_eq!(ask(&mut PageCache::new(6, PAGE, false), &first), ["off"]);
}
