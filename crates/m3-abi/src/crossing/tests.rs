//! Growth: a struct of minor 1 here, of minor 0 or 2 on the other side.

use super::*;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Minor0 {
    size: u32,
    a: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Minor1 {
    size: u32,
    a: u32,
    b: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Minor2 {
    size: u32,
    a: u32,
    b: u64,
    c: u64,
}

minimums! { Struct:
    Minor1 = "minor_1", 8;
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Element1 {
    a: u32,
    b: u32,
}

minimums! { Element:
    Element1 = "element_1", 4;
}

#[test]
fn an_older_struct_reads_as_zero_where_it_ends() {
    let older = [Minor0 { size: 8, a: 5 }, Minor0 { size: 99, a: 99 }];
    // SAFETY: readable as far as its size says.
    let read = unsafe { read_struct(older.as_ptr().cast::<Minor1>()) };
    assert_eq!(read, Ok(Minor1 { size: 8, a: 5, b: 0 }));
}

#[test]
fn an_older_struct_is_not_written_past_its_end() {
    let mut older = [Minor0 { size: 8, a: 5 }, Minor0 { size: 99, a: 99 }];
    // SAFETY: writable as far as its size says.
    unsafe { write_struct(older.as_mut_ptr().cast::<Minor1>(), &Minor1 { size: 16, a: 6, b: 7 }) };
    assert_eq!(older, [Minor0 { size: 8, a: 6 }, Minor0 { size: 99, a: 99 }]);
}

#[test]
fn a_newer_struct_is_read_and_written_as_far_as_known() {
    let mut newer = Minor2 { size: 24, a: 1, b: 2, c: 3 };
    // SAFETY: readable and writable as far as its size says.
    unsafe {
        let mut read = read_struct((&raw const newer).cast::<Minor1>()).unwrap();
        assert_eq!(read, Minor1 { size: 24, a: 1, b: 2 });
        read.b = 9;
        write_struct((&raw mut newer).cast::<Minor1>(), &read);
    }
    assert_eq!(newer, Minor2 { size: 24, a: 1, b: 9, c: 3 });
}

#[track_caller]
fn check_size_refused(size: u32, sentence: &str) {
    let lying = Minor1 { size, a: 0, b: 0 };
    // SAFETY: only the size is read when it is refused.
    let refusal = unsafe { read_struct(&raw const lying) }.unwrap_err().to_string();
    assert_eq!(refusal, sentence);
}

#[test]
fn lying_sizes_are_refused_with_both_numbers() {
    check_size_refused(0, "minor_1 says size 0; major 1 has at least 8 bytes");
    check_size_refused(4, "minor_1 says size 4; major 1 has at least 8 bytes");
    check_size_refused(13, "minor_1 says size 13, not a multiple of 8");
    check_size_refused(u32::MAX, "minor_1 says size 4294967295; at most 4096 bytes are believed");
}

#[test]
fn spans_of_equal_stride_are_borrowed_others_copied() {
    let values = [1_u32, 10, 2, 20, 3, 30];
    let span = |stride, count| Span { data: values.as_ptr().cast(), count, stride };
    // SAFETY: every span lies inside `values`.
    unsafe {
        let same = read_span::<Element1>(span(8, 3), "it").unwrap();
        assert!(matches!(same, Cow::Borrowed([_, Element1 { a: 2, b: 20 }, _])));
        let older = read_span::<Element1>(span(4, 3), "it").unwrap();
        let expected = [1, 10, 2].map(|a| Element1 { a, b: 0 });
        assert_eq!(*older, expected, "fields that an older element lacks are zero");
        let newer = read_span::<Element1>(span(12, 2), "it").unwrap();
        assert_eq!(*newer, [Element1 { a: 1, b: 10 }, Element1 { a: 20, b: 3 }]);
    }
}

#[test]
fn spans_without_alignment_are_copied() {
    let mut bytes = [0_u8; 17];
    let start = bytes.as_ptr().align_offset(4) + 1;
    bytes[start..start + 4].copy_from_slice(&7_u32.to_ne_bytes());
    let span = Span { data: bytes[start..].as_ptr().cast(), count: 1, stride: 4 };
    // SAFETY: four bytes from `start` lie inside `bytes`.
    assert_eq!(unsafe { read_span::<u32>(span, "it") }.unwrap(), Cow::<[u32]>::Owned(vec![7]));
}

#[test]
fn broken_spans_are_refused() {
    let values = [0_u32; 2];
    let refusal = |data, count, stride| {
        // SAFETY: refused before anything is read.
        unsafe { read_span::<u32>(Span { data, count, stride }, "it") }.unwrap_err().to_string()
    };
    let data = values.as_ptr().cast();
    assert_eq!(refusal(std::ptr::null(), 2, 4), "it is null but says 2 elements");
    assert_eq!(refusal(data, 2, 3), "it says stride 3; uint32_t has at least 4 bytes in major 1");
    assert_eq!(refusal(data, 2, 0), "it says stride 0; uint32_t has at least 4 bytes in major 1");
    assert!(refusal(data, u64::MAX / 2, 4).contains("more than memory can hold"));
    // SAFETY: no element is read.
    let empty = unsafe { read_span::<u32>(Span { data: std::ptr::null(), count: 0, stride: 0 }, "it") };
    assert!(empty.unwrap().is_empty());
}

#[test]
fn texts_are_cut_between_characters_and_never_written_past_the_room() {
    let mut buffer = [0xEE_u8; 6];
    let mut text = Text { data: buffer.as_mut_ptr(), capacity: 4, len: 0 };
    // SAFETY: four of six bytes are offered.
    unsafe { fill_text(&mut text, "abcé!") };
    assert_eq!((&buffer, text.len), (b"abc\xEE\xEE\xEE", 6));
    assert_eq!(text_in(&buffer[..3], &text), "abc");
    let mut nowhere = Text { data: std::ptr::null_mut(), capacity: 9, len: 0 };
    // SAFETY: null is allowed.
    unsafe { fill_text(&mut nowhere, "lost") };
    assert_eq!(nowhere.len, 4);
}

#[test]
fn bytes_that_do_not_fit_are_not_written_at_all() {
    let mut buffer = [0xEE_u8; 4];
    let mut text = text_of(&mut buffer[..2]);
    // SAFETY: two of four bytes are offered.
    unsafe { fill_bytes(&mut text, &[1, 2, 3]) };
    assert_eq!((buffer, text.len), ([0xEE; 4], 3));
}

#[test]
fn minimums_are_the_sizes_of_minor_0() {
    fn check<T: Struct>() {
        assert!(T::MINIMUM_BYTES <= size_of::<T>(), "{}", T::NAME);
        if MINOR == 0 && T::NAME != Table::NAME {
            assert_eq!(T::MINIMUM_BYTES, size_of::<T>(), "{}", T::NAME);
        }
    }
    fn check_element<T: Element>() {
        assert!(
            T::MINIMUM_BYTES <= size_of::<T>() && (MINOR != 0 || T::MINIMUM_BYTES == size_of::<T>()),
            "{}",
            T::NAME
        );
    }
    check::<Host>();
    check::<Table>();
    check::<ProbeArgs>();
    check::<Probe>();
    check::<OpenArgs>();
    check::<Tensor>();
    check::<Ready>();
    check::<ReserveArgs>();
    check::<StepArgs>();
    check::<OutputArgs>();
    check::<EncodeArgs>();
    check::<EncodeResult>();
    check::<TapArgs>();
    check::<RegionArgs>();
    check_element::<WarmShape>();
    check_element::<RowBind>();
    check_element::<TokenBias>();
    check_element::<PageAppend>();
    check_element::<Seq>();
    check_element::<MediaSpan>();
    check_element::<Region>();
    check_element::<PageCopy>();
    assert_eq!(Table::MINIMUM_BYTES, std::mem::offset_of!(Table, copy_pages), "a table may end after close");
}
