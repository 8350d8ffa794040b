//! backend-gfx942
