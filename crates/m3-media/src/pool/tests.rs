//! A full pool makes waiters wait, in turns and in memory, and lets go when they are done or cancelled.

use super::Pool;
use crate::error::Kind;
use crate::policy::Limits;
use bytes::Bytes;
use futures_util::future::join_all;
use std::time::Duration;

fn png(width: u32, height: u32) -> Bytes {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&vec![7; (width * height) as usize]).expect("pixels");
    writer.finish().expect("an end");
    bytes.into()
}

#[tokio::test]
async fn many_pictures_pass_a_small_pool() {
    let pool = Pool::new(Limits::default(), 2, 1);
    let pictures = join_all((1..=40).map(|width| pool.image(png(width, 3)))).await;
    for (width, picture) in (1..=40).zip(pictures) {
        let picture = picture.expect("a picture");
        assert_eq!((picture.width, picture.height), (width, 3));
        assert!(picture.rgb.iter().all(|value| *value == 7));
    }
    assert_eq!(pool.turns.available_permits(), 2);
    assert_eq!(pool.memory.available_permits(), 1);
}

#[tokio::test]
async fn a_full_pool_waits_and_goes_on() {
    let pool = Pool::new(Limits::default(), 1, 1 << 30);
    let held = pool.turn().await.expect("a turn");
    let waiting = pool.image(png(4, 4));
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    drop(held);
    assert!(waiting.await.is_ok());
    let held = pool.memory(1 << 30).await.expect("all memory");
    let waiting = pool.image(png(4, 4));
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    drop(held);
    assert!(waiting.await.is_ok());
}

#[tokio::test]
async fn failures_and_cancelled_waiters_give_their_places_back() {
    let pool = Pool::new(Limits { max_pixels: 100, ..Limits::default() }, 1, 8 << 20);
    let error = pool.image(png(11, 10)).await.expect_err("too large");
    assert_eq!(error.kind(), Kind::TooLarge);
    assert_eq!(pool.image(Bytes::from_static(b"BM")).await.expect_err("broken").kind(), Kind::Invalid);
    let held = pool.turn().await.expect("a turn");
    assert!(tokio::time::timeout(Duration::from_millis(20), pool.image(png(4, 4))).await.is_err());
    drop(held);
    assert!(pool.image(png(10, 10)).await.is_ok(), "one request's failure is not the next one's");
    assert_eq!((pool.turns.available_permits(), pool.memory.available_permits()), (1, 8));
}
