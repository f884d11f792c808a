package coordinator

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// cluster is one topic, t, of so many partitions.
type cluster struct{ partitions int32 }

var topicT = [16]byte{7}

func (c cluster) Topic(name string) (share.Topic, bool) {
	return share.Topic{ID: topicT, Partitions: c.partitions}, name == "t"
}

func (c cluster) Settings(string) share.Settings {
	return share.Settings{SessionTimeout: 10 * time.Second, HeartbeatInterval: time.Second, MaxSize: 10}
}

// changes notes what a watcher is told.
type changes struct {
	sync.Mutex
	list []group.ShareChange
}

func (c *changes) ShareChanged(change group.ShareChange) {
	c.Lock()
	defer c.Unlock()
	c.list = append(c.list, change)
}

func (c *changes) take() []group.ShareChange {
	c.Lock()
	defer c.Unlock()
	list := c.list
	c.list = nil
	return list
}

func (r *rig) shareHeartbeat(id, member string, epoch int32) (share.Answer, error) {
	h := &share.Heartbeat{Group: id, MemberID: member, Epoch: epoch}
	if epoch == 0 {
		h.Topics = []string{"t"}
	}
	return r.c.ShareHeartbeat(context.Background(), h)
}

func (r *rig) view(id string) *share.View {
	r.t.Helper()
	v, err := r.c.Share(context.Background(), id)
	require.NoError(r.t, err)
	return v
}

func newShareRig(t *testing.T) (*rig, *changes) {
	r, w := newRig(t, nil), &changes{}
	r.c.SetCluster(cluster{1})
	r.c.WatchShares(w)
	return r, w
}

func TestMembersOfShareGroupsMayFetchOnceTheyAreAnswered(t *testing.T) {
	r, w := newShareRig(t)
	require.Nil(t, r.view("g"))
	a, err := r.shareHeartbeat("g", "a", 0)
	require.NoError(t, err)
	require.Equal(t, []share.TopicPartitions{{Topic: topicT, Partitions: []int32{0}}}, a.Assignment)
	require.True(t, r.view("g").MayFetch("a", topicT, 0))
	require.False(t, r.view("g").MayFetch("b", topicT, 0))
	told := w.take()
	require.Len(t, told, 1)
	require.Same(t, r.view("g"), told[0].View)

	// A refusal comes with its words.
	_, err = r.shareHeartbeat("g", "b", 1)
	require.ErrorIs(t, err, kerr.UnknownMemberID)
	require.EqualError(t, err, "Member b is not a member of group g.")

	_, err = r.shareHeartbeat("g", "a", -1)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, w.take()[0].Gone)
	require.False(t, r.view("g").Member("a"))
	require.NoError(t, r.c.Delete(context.Background(), "g", nil))
	require.Nil(t, w.take()[0].View)
	require.Nil(t, r.view("g"))
}

// TestShareGroupsFollowTheCluster holds that a partition more is dealt without that anybody
// asks for anything.
func TestShareGroupsFollowTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := newShareRig(t)
		defer r.stop()
		_, err := r.shareHeartbeat("g", "a", 0)
		require.NoError(t, err)
		w.take()
		r.c.SetCluster(cluster{2})
		synctest.Wait()
		require.True(t, w.take()[0].View.MayFetch("a", topicT, 1))
		require.True(t, r.view("g").MayFetch("a", topicT, 1))
	})
}

// restless is a cluster that is another as soon as it is looked at.
type restless struct {
	cluster
	change func()
}

func (r restless) Topic(name string) (share.Topic, bool) {
	r.change()
	return r.cluster.Topic(name)
}

// TestAClusterThatChangesDuringTheFirstJoin holds that no change is missed while nobody knows
// yet that there is a share group.
func TestAClusterThatChangesDuringTheFirstJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		r.c.SetCluster(restless{cluster{1}, func() { r.c.SetCluster(cluster{2}) }})
		_, err := r.shareHeartbeat("g", "a", 0)
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, r.view("g").MayFetch("a", topicT, 1))
	})
}

// TestSilentShareMembersAreToldOf holds that the end of a session is noticed when it comes,
// without any request.
func TestSilentShareMembersAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := newShareRig(t)
		defer r.stop()
		_, err := r.shareHeartbeat("g", "a", 0)
		require.NoError(t, err)
		w.take()
		pass(9 * time.Second)
		synctest.Wait()
		require.Empty(t, w.take())
		pass(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a"}, w.take()[0].Gone)
		require.Empty(t, r.view("g").Members())
	})
}

func TestShareGroupsSurviveARestart(t *testing.T) {
	for _, checkpoint := range []bool{false, true} {
		r, _ := newShareRig(t)
		_, err := r.shareHeartbeat("g", "a", 0)
		require.NoError(t, err)
		_, err = r.shareHeartbeat("g", "b", 0)
		require.NoError(t, err)
		if checkpoint {
			require.NoError(t, r.c.Checkpoint(context.Background()))
		}
		r.restart()
		w := &changes{}
		r.c.SetCluster(cluster{1})
		r.c.WatchShares(w)
		require.True(t, r.view("g").MayFetch("b", topicT, 0), "without a heartbeat")
		require.Len(t, w.take(), 1)
		a, err := r.shareHeartbeat("g", "a", 2)
		require.NoError(t, err)
		require.EqualValues(t, 3, a.Epoch)
		d, err := r.c.DescribeShare(context.Background(), "g")
		require.NoError(t, err)
		require.Len(t, d.Members, 2)
	}
}

// TestShareGroupsAfterAFailedFsync holds that who was not answered is no member, that
// readers see so, and that the watcher is told of the group anew.
func TestShareGroupsAfterAFailedFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := newShareRig(t)
		defer r.stop()
		_, err := r.shareHeartbeat("g", "a", 0)
		require.NoError(t, err)
		waiting, release := r.syncs.hold()
		join := outcome(func() (share.Answer, error) { return r.shareHeartbeat("g", "b", 0) })
		<-waiting
		synctest.Wait()
		requireWaits(t, join)
		release(errDisk)
		require.ErrorIs(t, (<-join).err, kerr.NotCoordinator)
		w.take()
		_, err = r.shareHeartbeat("g", "a", 2)
		require.NoError(t, err, "this was durable, and nothing new is to be logged")
		require.Equal(t, []string{"a"}, r.view("g").Members())
		told := w.take()
		require.Len(t, told, 1)
		require.Equal(t, []string{"a"}, told[0].View.Members())
	})
}
