//! Golden pictures and clips: from pixels to the reference's patch rows.

use m3_media::geometry::Geometry;
use m3_media::patches::patches;
use m3_media::picture::{Clip, Picture};
use m3_media::prepare;
use m3_media::sample::Sampling;
use m3_media::size::{Rule, Size};
use safetensors::SafeTensors;

fn file(name: &str) -> Vec<u8> {
    let path = m3_testdata::golden(&format!("golden/vl/{name}.safetensors"));
    std::fs::read(path.expect("it is part of the repository")).expect("a readable file")
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let tensor = tensors.tensor(name).expect("a tensor of the golden");
    let bytes = tensor.data().chunks_exact(4);
    bytes.map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
}

fn grids(tensors: &SafeTensors<'_>) -> Vec<[u32; 3]> {
    let tensor = tensors.tensor("grid_thw").expect("a grid");
    let numbers = tensor.data().chunks_exact(4);
    let numbers: Vec<u32> =
        numbers.map(|four| u32::from_le_bytes(four.try_into().expect("four bytes"))).collect();
    numbers.chunks_exact(3).map(|grid| [grid[0], grid[1], grid[2]]).collect()
}

/// Pictures of a tensor [height, width, 3] or [frames, height, width, 3].
fn pictures(tensors: &SafeTensors<'_>, name: &str) -> Vec<Picture> {
    let tensor = tensors.tensor(name).expect("pixels");
    let [.., height, width, 3] = *tensor.shape() else { panic!("{name} is not RGB") };
    let frames = tensor.data().chunks_exact(height * width * 3);
    frames.map(|rgb| Picture { width: width as u32, height: height as u32, rgb: rgb.to_vec() }).collect()
}

/// How many values differ at all, and by how much at most.
fn difference(ours: &[f32], golden: &[f32]) -> (usize, f32) {
    assert_eq!(ours.len(), golden.len());
    let pairs = ours.iter().zip(golden);
    let unequal = pairs.clone().filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    (unequal, pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
}

#[test]
fn images_become_the_references_patches_bit_for_bit() {
    let bytes = file("images");
    let tensors = SafeTensors::deserialize(&bytes).expect("a golden");
    let (golden, grids) = (floats(&tensors, "patches"), grids(&tensors));
    assert_eq!(grids.len(), 4);
    let mut first = 0;
    for (at, grid) in grids.iter().enumerate() {
        let picture = &pictures(&tensors, &format!("image{at}.pixels"))[0];
        let ours = prepare::image(picture, &[0; 32], Rule::IMAGE, &Geometry::default(), 10_000);
        let ours = ours.expect("an image of the golden");
        assert_eq!(ours.grid, *grid, "image {at}, {}", picture.size());
        let last = first + ours.patches.len();
        assert_eq!(difference(&ours.patches, &golden[first..last]), (0, 0.0), "image {at}");
        first = last;
    }
    assert_eq!(first, golden.len());
}

#[test]
fn clips_become_the_references_patches_bit_for_bit() {
    for (name, count) in [("video8", 8), ("video11", 11)] {
        let bytes = file(name);
        let tensors = SafeTensors::deserialize(&bytes).expect("a golden");
        let frames = pictures(&tensors, "frames");
        assert_eq!(frames.len(), count);
        let size = frames[0].size();
        let ours = patches(&frames, size, &Geometry::default());
        assert_eq!(difference(&ours, &floats(&tensors, "patches")), (0, 0.0), "{name}");
        assert_eq!(vec![Geometry::default().grid(count, size)], grids(&tensors));
    }
}

/// The worked example of the model's specification: 3.3 s at 30 frames a second, 640 x 360.
#[test]
fn a_clip_becomes_its_times_and_tokens() {
    let video = m3_media::picture::Meta { width: 640, height: 360, fps: 30.0, total_frames: 100 };
    let frame_indices = Sampling::default().choose(&video, 768).expect("within limits");
    let frame = Picture { width: 640, height: 360, rgb: vec![9; 640 * 360 * 3] };
    let frame_size = frame.size();
    let clip = Clip { frames: vec![frame; frame_indices.len()], frame_indices, fps: 30.0, total_frames: 100 };
    let ours = prepare::video(
        &clip,
        (&[0; 32], frame_size),
        (Rule::VIDEO, Sampling::default()),
        &Geometry::default(),
        10_000,
    );
    let ours = ours.expect("the example");
    assert_eq!((ours.grid, ours.tokens_per_time, ours.tokens()), ([3, 26, 46], 299, 897));
    assert_eq!(ours.timestamps, ["0.0", "2.0", "3.3"]);
    assert_eq!(ours.patches.len(), 3_588 * 1_176);
}

#[test]
fn what_no_context_can_hold_is_refused_before_it_is_resized() {
    let picture = Picture { width: 640, height: 480, rgb: vec![0; 640 * 480 * 3] };
    let refused = prepare::image(&picture, &[0; 32], Rule::IMAGE, &Geometry::default(), 390);
    let sentence = "1 frames of 644x476 would be 391 tokens; this server accepts contexts of 390";
    assert_eq!(refused.expect_err("391 tokens").to_string(), sentence);
    let size = Size { height: 476, width: 644 };
    assert_eq!(Geometry::default().grid(1, size), [1, 34, 46]);
}
