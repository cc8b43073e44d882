//! x
mod clock;mod lane;mod pool;mod stall;
