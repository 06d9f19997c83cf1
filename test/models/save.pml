// A run of two ranks saves checkpoints while it trains (runtime/checkpoint). A process or the machine may stop between
// any two steps. README.md says what is modelled.
//
// MUTANT_... macros take one step out of the protocol. The test requires that the model then fails.

#define RANKS 2
#define SAVES 3 // checkpoint 0 is complete at the start, 1 and 2 are written; one more place for mutants
#define NONE 255

// What has reached the memory of the system, and what has reached the disk.
mtype:place = { Absent, Hidden, Final };
mtype:content = { Missing, Written, Flushed };
mtype:place place[SAVES + 1], diskPlace[SAVES + 1];
mtype:content shard[(SAVES + 1) * RANKS], manifest[SAVES + 1];
bool areEntriesFlushed[SAVES + 1]; // the entries of the hidden folder
mtype:content draft[SAVES + 1];    // Written: draft.json, Flushed: proven.json
byte latest = 0, diskLatest = 0;
byte reported = 0; // the newest checkpoint that the run has called complete

bool isAlive = true;   // the processes of the run
bool isPowered = true; // the machine

byte saved;            // the checkpoint in flight
bool isBusy[RANKS], hasFailed[RANKS], isCommitting, hasCommitFailed;
bool isLocked = true;  // by this run, by the supervisor or by the rival
bool isSupervising = false;

#define SHARD(checkpoint, rank) shard[(checkpoint) * RANKS + (rank)]

// Writer: the thread of a rank writes and flushes its file (shard_file.cpp). The disk may refuse.
proctype Writer(byte rank) provided (isAlive && isPowered) {
  byte mine;
  do
  :: isBusy[rank] ->
     mine = saved;
     if
     :: rank == 0 -> draft[mine] = Written
     :: else
     fi;
     if
     :: SHARD(mine, rank) = Written;
#ifndef MUTANT_FILE_NOT_FLUSHED
        SHARD(mine, rank) = Flushed
#endif
     :: hasFailed[rank] = true
     fi;
     isBusy[rank] = false
  od
}

// CheckpointFolder::commit and prune, in the thread of rank 0.
proctype Committer() provided (isAlive && isPowered) {
  byte old;
  do
  :: isCommitting ->
     draft[saved] = Missing;
     if
     :: skip
     :: hasCommitFailed = true; goto done
     fi;
     manifest[saved] = Written;
     manifest[saved] = Flushed;
     areEntriesFlushed[saved] = true;
#ifdef MUTANT_LATEST_BEFORE_RENAME
     latest = saved;
     diskLatest = saved;
#endif
#ifdef MUTANT_PRUNE_BEFORE_LATEST
     place[0] = Hidden;
#endif
     place[saved] = Final;
#ifndef MUTANT_RENAME_NOT_FLUSHED
     diskPlace[saved] = Final;
#endif
     latest = saved;
     diskLatest = saved;
     old = 0;
     do // --keep 1
     :: old < saved ->
        if
        :: place[old] == Final ->
           place[old] = Hidden; SHARD(old, 0) = Missing; SHARD(old, 1) = Missing; place[old] = Absent
        :: else
        fi;
        old++
     :: else -> break
     od;
done:
     isCommitting = false
  od
}

// All ranks reach a step border together, so one process stands for their main threads (background_save.cpp).
proctype Training() provided (isAlive && isPowered) {
  byte rank;
  saved = 1;
  do
  :: saved == SAVES -> break
  :: else ->
     place[saved] = Hidden;
     atomic { isBusy[0] = true; isBusy[1] = true }
     // Borders while a thread writes: a finite step proves the draft.
     do
     :: isBusy[0] || isBusy[1] ->
        if
        :: draft[saved] == Written -> draft[saved] = Flushed
        :: else
        fi
     :: !isBusy[0] && !isBusy[1] -> break
#ifdef MUTANT_DO_NOT_WAIT
     :: break
#endif
     od;
     if
     :: hasFailed[0] || hasFailed[1] ->
        d_step { place[saved] = Absent; diskPlace[saved] = Absent; draft[saved] = Missing;
                 SHARD(saved, 0) = Missing; SHARD(saved, 1) = Missing; hasFailed[0] = false; hasFailed[1] = false }
     :: else ->
        isCommitting = true;
        !isCommitting;
        if
        :: hasCommitFailed -> place[saved] = Absent; hasCommitFailed = false
        :: else -> reported = saved
        fi
     fi;
     saved++
  od
}

// A second run on the same folder: it sweeps hidden folders only if it gets the lock.
proctype Rival() provided (isPowered) {
  byte each;
#ifndef MUTANT_NO_LOCK
  if
  :: isLocked -> goto refused
  :: atomic { !isLocked -> isLocked = true }
  fi;
#endif
  d_step {
    assert(!isAlive || (place[1] != Hidden && place[2] != Hidden));
    assert(!isSupervising); // the folder has one owner
    each = 1;
    do // CheckpointFolder::sweep
    :: each < SAVES ->
       if
       :: place[each] == Hidden -> place[each] = Absent; diskPlace[each] = Absent; draft[each] = Missing;
          SHARD(each, 0) = Missing; SHARD(each, 1) = Missing
       :: else
       fi;
       each++
    :: else -> break
    od;
    each = 0;
    isLocked = false
  }
refused:
  skip
}

inline isWhole(checkpoint, result) {
  result = place[checkpoint] == Final && manifest[checkpoint] == Flushed && areEntriesFlushed[checkpoint] &&
           SHARD(checkpoint, 0) == Flushed && SHARD(checkpoint, 1) == Flushed
}

// What the next run finds: `latest` names a whole checkpoint, and nothing reported is lost.
inline resume() {
  each = 0;
  isWhole(latest, isGood);
  assert(isGood);
  do
  :: each < SAVES ->
     isWhole(each, isGood);
     if
     :: isGood -> found = each
     :: else
     fi;
     each++
  :: else -> break
  od;
  assert(found != NONE);
  assert(found >= reported)
}

// The machine stops: what was not flushed may be lost, in any combination.
inline losePower() {
  each = 0;
  do
  :: each < SAVES ->
     if
     :: place[each] = diskPlace[each]
     :: skip
     fi;
     if
     :: manifest[each] == Written -> manifest[each] = Missing
     :: else
     fi;
     each++
  :: else -> break
  od;
  if
  :: latest = diskLatest
  :: skip
  fi;
  each = 0;
  do
  :: each < SAVES * RANKS ->
     if
     :: shard[each] == Written -> shard[each] = Missing
     :: else
     fi;
     each++
  :: else -> break
  od
}

// A rank is killed: the system keeps its bytes, and the supervisor of an elastic run completes a proven save
// (unfinished.cpp). Or the machine stops, also while the supervisor works.
active proctype World() {
  byte each, now, found = NONE;
  bool isGood;
  d_step {
    place[0] = Final; diskPlace[0] = Final; manifest[0] = Flushed; areEntriesFlushed[0] = true;
    SHARD(0, 0) = Flushed; SHARD(0, 1) = Flushed;
    each = 1;
    do
    :: each < SAVES -> place[each] = Absent; diskPlace[each] = Absent; manifest[each] = Missing;
       SHARD(each, 0) = Missing; SHARD(each, 1) = Missing; draft[each] = Missing; each++
    :: else -> break
    od;
    draft[0] = Missing
  }
  atomic { run Writer(0); run Writer(1); run Committer(); run Training(); run Rival() }
  if
  :: isPowered = false; goto off
  :: isAlive = false; isLocked = false
  fi;
  // ElasticRun::completeSave takes the lock first, or leaves the save.
#ifndef MUTANT_SUPERVISOR_DOES_NOT_LOCK
  if
  :: atomic { !isLocked -> isLocked = true }
  :: isLocked -> goto next
  fi;
#endif
  isSupervising = true;
  now = saved;
  if
#ifdef MUTANT_UNPROVEN
  :: now < SAVES && place[now] == Hidden && draft[now] != Missing && manifest[now] == Missing &&
#else
  :: now < SAVES && place[now] == Hidden && draft[now] == Flushed && manifest[now] == Missing &&
#endif
#ifdef MUTANT_COMPLETE_HALF
     SHARD(now, 0) != Missing ->
#else
     SHARD(now, 0) != Missing && SHARD(now, 1) != Missing ->
#endif
     assert(draft[now] == Flushed);
     SHARD(now, 0) = Flushed;
     if
     :: SHARD(now, 1) == Written -> SHARD(now, 1) = Flushed
     :: else
     fi;
     if
     :: isPowered = false; goto off
     :: skip
     fi;
     manifest[now] = Flushed;
     areEntriesFlushed[now] = true;
     place[now] = Final;
     if
     :: isPowered = false; goto off
     :: skip
     fi;
     diskPlace[now] = Final;
     latest = now;
     if
     :: isPowered = false; goto off
     :: skip
     fi;
     diskLatest = now;
     reported = now
  :: else
  fi;
  isSupervising = false;
  goto next;
off:
  isAlive = false;
  isSupervising = false;
  losePower();
next:
  resume()
}
