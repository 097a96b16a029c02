package console

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// FlagError tells what is wrong with a flag in the words of whoever typed it.
func FlagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return Usage("%w", err)
	}
	flag, value, kind := wrong.GetFlag().Name, wrong.GetValue(), wrong.GetFlag().Value.Type()
	switch {
	case errors.Is(err, strconv.ErrRange):
		return Usage("--%s %s: it is too large", flag, value)
	case kind == "bool":
		return Usage("--%s %s: it must be true or false", flag, value)
	case kind == "int" || kind == "int64":
		return Usage("--%s %s: it must be a whole number", flag, value)
	case kind == "duration":
		return Usage("--%s %s: it must be a time span such as 90s or 5m", flag, value)
	}
	return Usage("--%s %s: %w", flag, value, wrong.Unwrap())
}

// CheckTime refuses the time of a flag that no server takes. None at all is fine.
func CheckTime(flag, text string) error {
	if _, err := time.Parse(time.RFC3339, text); text != "" && err != nil {
		return Usage("--%s %s: give a time such as 2026-01-02T15:04:05Z", flag, text)
	}
	return nil
}
