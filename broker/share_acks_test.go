package broker

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Names in a decoded request alias its frame, which is used again as soon as an
// acknowledgement has begun. Who sent it is needed once more for the answer.
func TestShareMemberOutlivesItsFrame(t *testing.T) {
	frame := []byte("group,member")
	group, member := unsafe.String(&frame[0], 5), unsafe.String(&frame[6], 6)
	m, err := memberOf(&group, &member)
	require.NoError(t, err)
	copy(frame, "other bytes now")
	require.Equal(t, shareMember{"group", "member"}, m)
}
