//! backend-gfx950
