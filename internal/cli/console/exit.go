package console

import "fmt"

// The exit codes.
const (
	ExitFailure = 1 // the thing did not work, or did not end well
	ExitUsage   = 2 // the command was not understood, or its input is invalid
)

// ExitError ends a command with a code. A nil cause prints nothing: the command has said what there is to say.
type ExitError struct {
	Code  int
	Cause error
}

func (e *ExitError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Cause.Error()
}

func (e *ExitError) Unwrap() error { return e.Cause }

// Usage marks an error as one of how the command was called.
func Usage(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Cause: fmt.Errorf(format, args...)}
}
