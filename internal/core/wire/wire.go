// Package wire holds the frames between server and agent: one struct per message, a strict decoder for each direction
// and the encoder. A frame is one JSON object with a type; unknown members are ignored in both directions, absent optional
// members are left out and never sent as null, since the other side refuses the whole frame for one bad member.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Version is the protocol version that both ends speak. Features are told apart by name, not by version.
const Version = 1

// MaxFrame is the largest frame in bytes that either end reads.
const MaxFrame = 25 << 20

// MaxAgentFrame is the largest frame in bytes that a server takes of an agent; it ends the connection over a larger one.
const MaxAgentFrame = 4 << 20

// Features that our own agents and servers have beyond the common protocol. One is in force only when both ends name it.
const (
	// FeatureFrameAck makes the server acknowledge frames after the transaction that applied them has committed; the agent
	// keeps them until then.
	FeatureFrameAck = "frame-ack"
	// FeatureStartFence forbids an agent to start a step before its job.ack was acknowledged.
	FeatureStartFence = "start-fence"
	// FeatureFastBeat means a heartbeat every 5 s and a job.heartbeat with a progress counter every 10 s.
	FeatureFastBeat = "fast-beat"
	// FeatureArtifacts lets an agent ask for a place for an artifact and confirm what it has put there.
	FeatureArtifacts = "artifacts"
)

// Message is one frame of either direction.
type Message interface {
	// MessageType is the value of the frame's member "type".
	MessageType() string
}

// Why a frame was refused. An invalid frame of a known type is an *InvalidError instead.
var (
	ErrMalformed   = errors.New("frame is not a JSON object")
	ErrUnknownType = errors.New("unknown message type")
)

// ErrTooLarge says that a frame is larger than MaxFrame. The other end would close the connection over it.
var ErrTooLarge = errors.New("frame is too large")

// UnknownTypeError is an ErrUnknownType that names the type.
type UnknownTypeError struct{ Type string }

func (e *UnknownTypeError) Error() string { return fmt.Sprintf("unknown message type %q", e.Type) }

// Unwrap makes it an ErrUnknownType.
func (e *UnknownTypeError) Unwrap() error { return ErrUnknownType }

// InvalidError says that a frame of a known type breaks its shape. It never repeats values, which may be secret.
type InvalidError struct {
	Type    string // "" when the frame has no type
	Field   string // path of the member, such as inFlightJobs.runId
	Problem string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s message: %s: %s", e.Type, e.Field, e.Problem)
}

// DecodeFromAgent reads a frame that an agent sent. NUL characters and invalid UTF-8 in its texts are replaced, since the
// texts go into the database.
func DecodeFromAgent(raw []byte) (Message, error) { return decode(raw, fromAgent, true) }

// DecodeFromServer reads a frame that the server sent.
func DecodeFromServer(raw []byte) (Message, error) { return decode(raw, fromServer, false) }

func decode(raw []byte, types map[string]reflect.Type, clean bool) (Message, error) {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	// All strings of the message share this one copy, so a chunk of fifty lines costs one allocation for its texts.
	d := decoder{s: string(raw), clean: clean}
	name, err := d.messageType()
	if err != nil {
		return nil, err
	}
	typ := types[name]
	if typ == nil {
		if err := d.skipAll(); err != nil {
			return nil, err
		}
		return nil, &UnknownTypeError{Type: name}
	}
	v := reflect.New(typ).Elem()
	d.pos = 0
	if err := d.document(planOf(typ), v); err != nil {
		if invalid, ok := errors.AsType[*InvalidError](err); ok {
			invalid.Type = name
		}
		return nil, err
	}
	return v.Interface().(Message), nil
}

// Encode writes a frame. Required lists, maps and objects that are nil are written as empty ones. Error: ErrTooLarge, or one
// of a member that is no JSON.
func Encode(m Message) ([]byte, error) {
	v := reflect.New(reflect.TypeOf(m)).Elem()
	v.Set(reflect.ValueOf(m))
	planOf(v.Type()).fill(v)

	var out bytes.Buffer
	fmt.Fprintf(&out, `{"type":%q,`, m.MessageType())
	start := out.Len()
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v.Interface()); err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.MessageType(), err)
	}
	raw := out.Bytes()
	// The body's opening brace becomes unnecessary behind the type; every message has at least one required member.
	raw = append(raw[:start], raw[start+1:]...)
	raw = bytes.TrimRight(raw, "\n")
	if len(raw) > MaxFrame {
		return nil, fmt.Errorf("encode %s of %d bytes: %w", m.MessageType(), len(raw), ErrTooLarge)
	}
	return raw, nil
}

// catalogue makes the table of one direction from a zero value of each message.
func catalogue(messages ...Message) map[string]reflect.Type {
	m := make(map[string]reflect.Type, len(messages))
	for _, msg := range messages {
		m[msg.MessageType()] = reflect.TypeOf(msg)
	}
	return m
}

var fromAgent = catalogue(
	AuthRequest{}, AgentRegister{}, ConfigAck{}, Heartbeat{}, AgentStatus{}, AgentLog{}, AgentMetrics{},
	JobAck{}, JobReject{}, JobStatus{}, StepStatus{}, LogChunk{}, JobHeartbeat{}, RunEvent{}, JobContext{},
	ConcurrencyReport{}, ApprovalRequest{},
	CacheUploadRequest{}, CacheUploadComplete{}, UserCacheRestoreRequest{}, UserCacheSaveRequest{}, UserCacheSaveComplete{},
	ArtifactUploadRequest{}, ArtifactCommitRequest{}, ProvenanceUploadRequest{}, ProvenanceUploadComplete{}, EventEmit{}, APIRequest{}, FleetBundleChunk{}, FleetBundleError{},
)

var fromServer = catalogue(
	AuthSuccess{}, AuthFailure{}, RegisterAck{}, Heartbeat{}, JobDispatch{}, JobCancel{}, Ack{},
	ConcurrencyAck{}, ApprovalResolved{}, CacheUploadResponse{}, UserCacheRestoreResponse{}, UserCacheSaveResponse{},
	ArtifactUploadResponse{}, ArtifactCommitResponse{}, ProvenanceUploadResponse{}, EventEmitResponse{}, APIResponse{}, FleetLogsRequest{}, RateLimitWarning{}, ErrorFrame{},
)
