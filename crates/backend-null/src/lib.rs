//! backend-null
