//! What bytes are, read from the bytes: a declared type and a file's name are hints that clients get wrong. No parsing
//! beyond what names the format.

use crate::error::{Error, Result};

/// A picture that is decoded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// PNG; of an animated one the default picture.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF, its first frame.
    Gif,
    /// WEBP; of an animated one the first frame.
    Webp,
    /// Windows bitmap.
    Bmp,
}

/// A video that is decoded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoFormat {
    /// MP4, MOV and their relatives.
    Mov,
    /// Matroska and WEBM.
    Matroska,
    /// AVI.
    Avi,
}

/// What bytes turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A picture.
    Image(ImageFormat),
    /// A video.
    Video(VideoFormat),
    /// Something that is known by name and not decoded.
    Other(&'static str),
    /// Nothing known.
    Unknown,
}

/// Formats told by their first bytes alone.
const STARTS: &[(&[u8], Format)] = &[
    (b"\x89PNG\r\n\x1a\n", Format::Image(ImageFormat::Png)),
    (b"\xff\xd8\xff", Format::Image(ImageFormat::Jpeg)),
    (b"GIF87a", Format::Image(ImageFormat::Gif)),
    (b"GIF89a", Format::Image(ImageFormat::Gif)),
    (b"BM", Format::Image(ImageFormat::Bmp)),
    (b"\x1a\x45\xdf\xa3", Format::Video(VideoFormat::Matroska)),
    (b"II*\0", Format::Other("TIFF")),
    (b"MM\0*", Format::Other("TIFF")),
    (b"\0\0\x01\0", Format::Other("an icon (ICO)")),
    (b"\xff\x0a", Format::Other("JPEG XL")),
    (b"\0\0\0\x0cJXL ", Format::Other("JPEG XL")),
    (b"\0\0\0\x0cjP  ", Format::Other("JPEG 2000")),
    (b"8BPS", Format::Other("Photoshop")),
    (b"%PDF", Format::Other("PDF")),
    (b"%!PS", Format::Other("PostScript")),
    (b"qoif", Format::Other("QOI")),
    (b"PK\x03\x04", Format::Other("ZIP")),
    (b"\x1f\x8b", Format::Other("gzip")),
    (b"FLV\x01", Format::Other("Flash video")),
    (b"\0\0\x01\xba", Format::Other("an MPEG program stream")),
    (b"#EXTM3U", Format::Other("a playlist (HLS)")),
    (b"ffconcat", Format::Other("a playlist")),
    (b"OggS", Format::Other("Ogg")),
    (b"ID3", Format::Other("MP3")),
];

/// Names the format of `bytes`.
pub fn sniff(bytes: &[u8]) -> Format {
    if let Some((_, format)) = STARTS.iter().find(|(start, _)| bytes.starts_with(start)) {
        return *format;
    }
    match (bytes.get(..4), bytes.get(8..12)) {
        (Some(b"RIFF"), Some(b"WEBP")) => return Format::Image(ImageFormat::Webp),
        (Some(b"RIFF"), Some(b"AVI ")) => return Format::Video(VideoFormat::Avi),
        (Some(b"RIFF"), Some(b"WAVE")) => return Format::Other("WAV"),
        _ => {}
    }
    match bytes.get(4..8) {
        Some(b"ftyp") => return file_type(bytes),
        // QuickTime before it had brands.
        Some(b"moov" | b"mdat" | b"wide" | b"free" | b"skip") => return Format::Video(VideoFormat::Mov),
        _ => {}
    }
    text(bytes)
}

/// The brand of an ISO base media file: videos, and pictures in a video's dress.
fn file_type(bytes: &[u8]) -> Format {
    match bytes.get(8..12) {
        Some(b"avif" | b"avis") => Format::Other("AVIF"),
        Some(b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1") => {
            // `mif1` is HEIF's generic brand; the compatible ones say which kind.
            let size =
                bytes.get(..4).map_or(0, |size| u32::from_be_bytes([size[0], size[1], size[2], size[3]]));
            let end = bytes.len().min(size as usize).max(12);
            let avif = bytes[12..end].chunks_exact(4).any(|brand| brand == b"avif");
            Format::Other(if avif { "AVIF" } else { "HEIC" })
        }
        Some(b"M4A " | b"M4B ") => Format::Other("MPEG-4 audio"),
        _ => Format::Video(VideoFormat::Mov),
    }
}

/// Markup that is sent in place of a picture.
fn text(bytes: &[u8]) -> Format {
    let head = &bytes[..bytes.len().min(1024)];
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start().to_ascii_lowercase();
    let has = |word: &[u8]| head.windows(word.len()).any(|window| window == word);
    if head.starts_with(b"<svg") || (head.starts_with(b"<?xml") || head.starts_with(b"<!")) && has(b"<svg") {
        Format::Other("SVG")
    } else if head.starts_with(b"<!doctype html") || head.starts_with(b"<html") {
        Format::Other("an HTML page")
    } else if head.starts_with(b"{") || head.starts_with(b"[") {
        Format::Other("JSON")
    } else {
        Format::Unknown
    }
}

/// The format of a picture, or why these bytes are none.
pub fn image(bytes: &[u8]) -> Result<ImageFormat> {
    match sniff(bytes) {
        Format::Image(format) => Ok(format),
        Format::Video(_) => Err(Error::Unsupported("the image is a video; send it as video_url".into())),
        other => Err(refuse("image", other, bytes, "PNG, JPEG, GIF, WEBP and BMP")),
    }
}

/// The format of a video, or why these bytes are none.
pub fn video(bytes: &[u8]) -> Result<VideoFormat> {
    match sniff(bytes) {
        Format::Video(format) => Ok(format),
        Format::Image(_) => Err(Error::Unsupported("the video is a picture; send it as image_url".into())),
        other => Err(refuse("video", other, bytes, "MP4, MOV, MKV, WEBM and AVI")),
    }
}

fn refuse(kind: &str, format: Format, bytes: &[u8], known: &str) -> Error {
    match format {
        _ if bytes.is_empty() => Error::Broken(format!("the {kind} is empty")),
        Format::Other(name) => Error::Unsupported(format!("the {kind} is {name}; this server reads {known}")),
        _ => Error::Unsupported(format!("the {kind} is in no known format; this server reads {known}")),
    }
}
