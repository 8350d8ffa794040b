//! backend-sm100
