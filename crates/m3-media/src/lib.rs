//! Images and videos from a client's words to pixels: where they may come from, how they are fetched and decoded, how
//! they become the patches that the vision tower reads.
//!
//! It knows bytes, pixels and the rules of the network. It is not the engine and names none of its types, and it knows
//! no wire format: the server hands it strings and bytes and gives the results their place in a prompt.

pub mod decode;
pub mod digest;
pub mod error;
pub mod fetch;
pub mod geometry;
pub mod patches;
pub mod picture;
pub mod policy;
pub mod pool;
pub mod prepare;
pub mod resize;
pub mod sample;
pub mod size;
pub mod sniff;
pub mod source;
pub mod video;
pub mod view;

pub use decode::decode_image;
pub use error::{Error, Kind, Result};
pub use fetch::{Fetcher, Wanted};
pub use picture::{Clip, Meta, Picture};
pub use policy::{Limits, Policy};
pub use pool::Pool;
pub use source::Source;
pub use video::decode_video;
