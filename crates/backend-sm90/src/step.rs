//! Steps on their way to the device: packed, laid out, and the records that sampling takes.

pub(crate) mod arrays;
pub(crate) mod pack;
pub(crate) mod sampling;
