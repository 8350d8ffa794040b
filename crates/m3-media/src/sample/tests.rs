//! The choice of frames against the specification's examples, and its promises on all others.

use super::*;

fn video(total_frames: u64, fps: f64) -> Meta {
    Meta { width: 64, height: 64, fps, total_frames }
}

fn chosen(total_frames: u64, video_fps: f64, fps: f64, max_frames: Option<u64>) -> Vec<u64> {
    Sampling { fps, max_frames }.choose(&video(total_frames, video_fps), 768).expect("within limits")
}

#[test]
fn frames_are_those_of_the_specification() {
    assert_eq!(chosen(100, 30.0, 1.0, None), [0, 30, 60, 90, 99]);
    assert_eq!(chosen(48, 24.0, 1.0, None), [0, 24, 47]);
    let ntsc = [0, 30, 60, 90, 120, 150, 180, 210, 240, 270, 299];
    assert_eq!(chosen(300, 29.97, 1.0, None), ntsc);
    assert_eq!(chosen(90, 30.0, 2.0, None), [0, 15, 30, 45, 60, 75, 89]);
    assert_eq!(chosen(25, 25.0, 1.0, None), [0, 24]);
    assert_eq!(chosen(1, 30.0, 1.0, None), [0]);
}

#[test]
fn a_lower_count_thins_the_choice_and_keeps_the_last_frame() {
    assert_eq!(chosen(100, 30.0, 1.0, Some(1)), [99]);
    assert_eq!(chosen(100, 30.0, 1.0, Some(2)), [0, 99]);
    assert_eq!(chosen(100, 30.0, 1.0, Some(3)), [0, 60, 99]);
    assert_eq!(chosen(100, 30.0, 1.0, Some(4)), [0, 30, 90, 99]);
    assert_eq!(chosen(100, 30.0, 1.0, Some(5)), [0, 30, 60, 90, 99]);
    assert_eq!(chosen(100, 30.0, 1.0, Some(50)), [0, 30, 60, 90, 99]);
}

#[test]
fn frames_ascend_start_at_the_first_and_end_at_the_last() {
    for total in [1, 2, 3, 7, 24, 25, 26, 299, 1000] {
        for video_fps in [0.5, 1.0, 10.0, 23.976, 29.97, 30.0, 59.94, 120.0] {
            for fps in [0.2, 0.5, 1.0, 2.0, 4.99, 5.0] {
                for max_frames in [None, Some(2), Some(5), Some(64)] {
                    let sampling = Sampling { fps, max_frames };
                    let Ok(chosen) = sampling.choose(&video(total, video_fps), 100_000) else {
                        panic!("{total} frames at {video_fps}, {sampling:?}");
                    };
                    assert!(chosen.is_sorted_by(|before, after| before < after), "{chosen:?}");
                    assert_eq!((chosen[0], chosen[chosen.len() - 1]), (0, total - 1));
                    assert!(max_frames.is_none_or(|most| chosen.len() as u64 <= most));
                }
            }
        }
    }
}

#[test]
fn too_many_frames_are_refused_before_any_is_decoded() {
    let long = video(3600 * 30, 30.0);
    let sentence = Sampling::default().choose(&long, 768).expect_err("an hour").to_string();
    assert!(
        sentence.starts_with("the video is 3600.0 s long, more than the limit of 768 frames"),
        "{sentence}"
    );
    let fewer = Sampling { max_frames: Some(768), ..Sampling::default() }.choose(&long, 768);
    assert_eq!(fewer.map(|chosen| chosen.len()), Ok(768));
    let claimed = video(u64::MAX, 1e9);
    assert!(Sampling { fps: 5.0, max_frames: Some(4) }.choose(&claimed, 768).is_err());
}

#[test]
fn rates_and_counts_outside_their_limits_are_refused() {
    for fps in [0.0, 0.19, 5.01, -1.0, f64::NAN, f64::INFINITY] {
        let sentence = Sampling { fps, max_frames: None }.check().expect_err("outside").to_string();
        assert_eq!(sentence, format!("fps is {fps}; it must be from 0.2 to 5"));
    }
    assert!(Sampling { fps: 1.0, max_frames: Some(0) }.check().is_err());
    for (total, fps) in [(0, 30.0), (10, 0.0), (10, f64::NAN), (10, -3.0), (10, f64::INFINITY)] {
        assert!(Sampling::default().choose(&video(total, fps), 768).is_err(), "{total} frames at {fps}");
    }
}

#[test]
fn times_are_of_the_first_frame_of_each_pair() {
    assert_eq!(timestamps(&[0, 30, 60, 90, 99], 30.0, 2), ["0.0", "2.0", "3.3"]);
    assert_eq!(timestamps(&[0], 30.0, 2), ["0.0"]);
    assert_eq!(timestamps(&[0, 1, 25, 26], 2.0, 2), ["0.0", "12.5"]);
}

#[test]
fn halves_are_rounded_to_even_on_the_binary_value() {
    // Each a half that binary holds exactly, beside ones that it does not.
    let times = [(0.25, "0.2"), (0.75, "0.8"), (1.25, "1.2"), (2.75, "2.8"), (0.35, "0.3"), (0.45, "0.5")];
    for (time, text) in times {
        assert_eq!(format!("{time:.1}"), text);
    }
    assert_eq!(timestamps(&[1, 2, 3, 4, 5], 4.0, 2), ["0.2", "0.8", "1.2"]);
}
