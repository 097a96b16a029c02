//go:build !linux

package proc

import (
	"errors"
	"time"
)

var errNoFigures = errors.New("figures of other processes are read on Linux only")

// CPU is read on Linux only.
func CPU(int) (time.Duration, error) { return 0, errNoFigures }

// RSS is read on Linux only.
func RSS(int) (float64, error) { return 0, errNoFigures }
