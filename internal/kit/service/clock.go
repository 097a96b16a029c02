package service

import "time"

// Clock tells the time. It is a function so that a test can hand in its own.
type Clock func() time.Time

// Millis is the time as the database keeps it: milliseconds since 1970, UTC.
func (c Clock) Millis() int64 { return c().UnixMilli() }
