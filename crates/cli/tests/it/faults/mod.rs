//! Faults, attacks and load; each case carries its number.
