//go:build !unix

package proc

import "errors"

var errNoPause = errors.New("programs can be paused on Unix only")

// Pause works on Unix only.
func (p *Process) Pause() error { return errNoPause }

// Resume works on Unix only.
func (p *Process) Resume() error { return errNoPause }
