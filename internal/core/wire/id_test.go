package wire

import (
	"reflect"
	"testing"
)

// What an agent asks, and what it keeps until the server has it, is found again by the id that the server names. A frame
// without one would be kept, and sent on every connection, for ever.
func TestTheIDOfAFrameIsTheOneInIt(t *testing.T) {
	neither := map[string]bool{} // acknowledged nor answered under its id
	for _, m := range []Message{AuthRequest{}, AgentRegister{}, ConfigAck{}, AgentStatus{}, AgentLog{}, AgentMetrics{}, JobReject{}, JobHeartbeat{},
		RunEvent{}, JobContext{}, FleetBundleChunk{}, FleetBundleError{}} {
		neither[m.MessageType()] = true
	}
	for name, of := range fromAgent {
		v := reflect.New(of).Elem()
		want := ""
		for _, field := range []string{"MessageID", "RequestID"} {
			if f := v.FieldByName(field); f.IsValid() && !neither[name] {
				f.SetString("the id")
				want = "the id"
			}
		}
		if got := ID(v.Interface().(Message)); got != want {
			t.Errorf("%s is known as %q, want %q", name, got, want)
		}
	}
}
