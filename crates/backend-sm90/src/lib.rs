//! backend-sm90
