package wire

import "unicode/utf8"

// Codes with which a connection is closed. An agent takes every one but CloseUnauthorized for temporary and reconnects;
// after CloseUnauthorized (or any auth.failure) it never does, so temporary trouble of the server is CloseInternal.
const (
	CloseNormal       = 1000 // the agent leaves
	CloseGoingAway    = 1001 // server shutdown, superseded connection, too many ownership violations
	CloseTooBig       = 1009 // frame above MaxFrame
	CloseTimeout      = 4002 // no auth.request or agent.register in time
	CloseInvalid      = 4003 // malformed, invalid or oversized message, not registered, agent id in use
	CloseHeartbeat    = 4004 // silent for too long
	CloseVersion      = 4005 // protocol version below the minimum
	CloseInternal     = 4006 // the server could not do its part
	CloseUnauthorized = 4010 // token or gate violation
	CloseNoAck        = 4031 // a dispatch was not answered in time
)

// Reasons of closes.
const (
	ReasonAgentLeaves        = "Agent disconnect"
	ReasonShutdown           = "Server shutting down"
	ReasonSuperseded         = "Superseded by a newer connection"
	ReasonAuthTimeout        = "Auth timeout"
	ReasonRegisterTimeout    = "Registration timeout"
	ReasonFirstAuth          = "First message must be auth.request"
	ReasonFirstRegister      = "First message must be agent.register"
	ReasonMalformed          = "Malformed JSON"
	ReasonInvalid            = "Invalid message"
	ReasonTooLarge           = "Message too large"
	ReasonRateLimit          = "Sustained rate limit violation"
	ReasonCollision          = "AgentId already registered with a different token"
	ReasonHeartbeatTimeout   = "Heartbeat timeout"
	ReasonInternal           = "Internal error"
	ReasonAuthFailed         = "Authentication failed"
	ReasonInvalidToken       = "Invalid or expired token"
	ReasonMisconfigured      = "Server misconfiguration"
	ReasonTokenState         = "Server token state error"
	ReasonTokenRevoked       = "Token revoked"
	ReasonOwnership          = "Too many ownership violations"
	ReasonDispatchAckTimeout = "dispatch ack timeout"
)

// ReasonNotAssigned is the reason of the job.cancel that answers an agent speaking of a job that is no longer its own.
const ReasonNotAssigned = "job no longer assigned to this agent"

// The notice that precedes a close for an invalid message.
const (
	CodeInvalidMessage = "INVALID_MESSAGE"
	TextInvalidMessage = "Invalid message format"
)

// maxReason is what fits a close frame: 125 bytes less two of the code.
const maxReason = 123

// CloseReason cuts a reason to what fits a close frame, between characters.
func CloseReason(s string) string {
	if len(s) <= maxReason {
		return s
	}
	end := maxReason
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
