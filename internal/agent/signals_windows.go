package agent

import "os"

// drainSignals are none: this system has no signal for it.
var drainSignals []os.Signal
