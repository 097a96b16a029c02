//go:build !linux

package telemetry

// processFamilies is empty where the system has no /proc.
func processFamilies() []Family { return nil }
