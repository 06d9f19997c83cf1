// Three launchers join, agree on what they run, train, and report the first failure (runtime/launch, runtime/run).
// One fault happens at any moment, or two, or none. README.md says what is modelled.
//
// MUTANT_... macros take one rule out of the protocol. The test requires that the model then fails.

#define LAUNCHERS 3
#define NONE 255
#define SUCCESS 100
#define REFUSED 101
#define PATIENCE 2 // FirstFailure

mtype:fault = { NoFault, RankFails, LauncherDies, HostDies, LinkIsCut, OtherPlan, OtherData };
mtype:kind = { Join, Contribution, Failure, Settled, Done, Hello, Refusal, Roster, Gathered, Report };

mtype:fault fault = NoFault;
byte culprit = NONE; // the launcher of the fault
bool hasHappened = false;
byte second = NONE;       // the launcher of a second failed rank
bool isSecondLate = false; // it failed after the decision on the first failure

byte host[LAUNCHERS]; // of a launcher: one per host, or two on one host, as torchrun and srun start them

chan up[LAUNCHERS] = [6] of { mtype:kind, byte, bool };   // from a launcher to the first one: kind, launcher, isEcho
chan down[LAUNCHERS] = [8] of { mtype:kind, byte, bool }; // from the first launcher
bool isAlive[LAUNCHERS], isConnected[LAUNCHERS], isTraining[LAUNCHERS], mayEcho[LAUNCHERS], isReporter[LAUNCHERS];
bool hasExited[LAUNCHERS];
byte said[LAUNCHERS]; // what a launcher ends with: the launcher that it blames, SUCCESS or REFUSED
bool areAllTrained = false, isDecisionSent = false, wasRosterSent = false, hasBegun = false;
bool isMember[LAUNCHERS], isMissed[LAUNCHERS]; // as the first launcher sees the others
bool isServerMissed[LAUNCHERS];
byte contributions, differs = NONE;
// The launcher that joined first, and the one that reports for a lost first launcher: the first on another host, or the
// first (Launchers::isReporter).
byte joined = NONE, heir = NONE;

// FirstFailure of each launcher.
byte first[LAUNCHERS], polls[LAUNCHERS];
bool isEcho[LAUNCHERS];

#define isGone(at) (!isAlive[at] || hasExited[at])
#define isLost(at) (!isConnected[at] || isGone(at))
#define isServerLost(at) (!isConnected[at] || isGone(0))
#define isDrained(at) ((empty(up[at]) || isGone(0)) && (empty(down[at]) || isGone(at)))
#define isDecided(at) (first[at] != NONE && (!isEcho[at] || polls[at] >= PATIENCE))
#define hasFailed(at) ((fault == RankFails && culprit == at && hasHappened) || second == at)
// Nothing is under way: no message, no failed rank and no lost neighbour that its launcher has not noticed.
#define isBlind(at) (isTraining[at] && hasFailed(at))
#define isServerUnaware(of) (!isGone(0) && isMember[of] && isLost(of) && !isMissed[of])
#define isClientUnaware(at) (!isGone(at) && isServerLost(at) && !isServerMissed[at])
#define isQuiet (isDrained(1) && isDrained(2) && !isBlind(0) && !isBlind(1) && !isBlind(2) && \
                 !isServerUnaware(1) && !isServerUnaware(2) && !isClientUnaware(1) && !isClientUnaware(2))

// FirstFailure::consider
inline consider(at, whose, sign) {
  if
#ifdef MUTANT_LAST_FAILURE
  :: true -> first[at] = whose; isEcho[at] = sign
#else
  :: first[at] == NONE || (isEcho[at] && !sign && !isDecided(at)) -> first[at] = whose; isEcho[at] = sign
  :: else
#endif
  fi
}

// FirstFailure::poll. Messages and news of dead neighbours arrive within a poll interval, so polls count when nothing
// is under way.
#ifdef MUTANT_NO_PATIENCE
#define pollNow(at) first[at] != NONE && isEcho[at] && polls[at] < PATIENCE
#else
#define pollNow(at) first[at] != NONE && isEcho[at] && polls[at] < PATIENCE && isQuiet
#endif

// ControlServer::send: to a member whose connection stands.
#define tell(to, what, which) if :: isMember[to] && !isLost(to) -> down[to]!what(which, false) :: else fi
// ControlClient::send
#define answer(what, which, sign) if :: !isServerLost(own) -> up[own]!what(which, sign) :: else fi

// A process ends.
inline end(at, word) {
  said[at] = word; hasExited[at] = true; isTraining[at] = false; mayEcho[at] = false
}

// AllGathers::add and Launchers::gather: the agreement on what the ranks read (runtime/train/statement.h).
inline contribute(from) {
  contributions++;
  if
  :: fault == OtherData && culprit == from -> differs = from
  :: else
  fi;
  if
  :: contributions == LAUNCHERS ->
     contributions = 0;
     tell(1, Gathered, differs); tell(2, Gathered, differs);
     if
#ifndef MUTANT_DATA_NOT_COMPARED
     :: differs != NONE -> consider(0, differs, false)
#endif
     :: else -> isTraining[0] = !isDecisionSent; hasBegun = !isDecisionSent
     fi
  :: else
  fi
}

// ControlServer::State::join, Launchers::greet and Launchers::refuse
inline join(from) {
  if
#ifndef MUTANT_PLAN_NOT_COMPARED
  :: fault == OtherPlan && culprit == from ->
     if :: !isLost(from) -> down[from]!Refusal(0, false) :: else fi;
     isMissed[from] = true;
     consider(0, from, false)
  :: else ->
#else
  :: true ->
#endif
     isMember[from] = true;
     if
     :: joined == NONE -> joined = from
     :: else
     fi;
     tell(from, Hello, 0);
#ifndef MUTANT_LATE_NOT_GREETED
     if
     :: isDecisionSent -> tell(from, Failure, first[0])
     :: else
     fi;
#endif
     if
     :: isMember[1] && isMember[2] -> // Launchers::turn: all have come
        wasRosterSent = true;
        heir = joined;
#ifndef MUTANT_HEIR_ON_THE_SAME_HOST
        if
        :: host[joined] == host[0] && host[3 - joined] != host[0] -> heir = 3 - joined
        :: else
        fi;
#endif
        tell(1, Roster, 0);
        tell(2, Roster, 0);
        contribute(0)
     :: else
     fi
  fi
}

proctype Server() provided (isAlive[0]) {
  bool isDone[LAUNCHERS], hasSettled[LAUNCHERS], hasLeft;
  byte about;
  bool echo;
  do
  :: atomic { up[1]?Join(about, echo) -> join(1) }
  :: atomic { up[2]?Join(about, echo) -> join(2) }
  :: atomic { up[1]?Contribution(about, echo) -> contribute(1) }
  :: atomic { up[2]?Contribution(about, echo) -> contribute(2) }
  // Launchers::hearMessage
  :: atomic { up[1]?Failure(about, echo) -> consider(0, about, echo); about = 0; echo = false }
  :: atomic { up[2]?Failure(about, echo) -> consider(0, about, echo); about = 0; echo = false }
  :: atomic { up[1]?Settled(about, echo) -> hasSettled[1] = true }
  :: atomic { up[2]?Settled(about, echo) -> hasSettled[2] = true }
  :: atomic { up[1]?Done(about, echo) -> isDone[1] = true }
  :: atomic { up[2]?Done(about, echo) -> isDone[2] = true }
  // Launchers::miss: a lost launcher is a failure, unless it has completed.
  :: atomic { isMember[1] && isLost(1) && empty(up[1]) && !isMissed[1] ->
       isMissed[1] = true; if :: !isDone[1] -> consider(0, 1, false) :: else fi }
  :: atomic { isMember[2] && isLost(2) && empty(up[2]) && !isMissed[2] ->
       isMissed[2] = true; if :: !isDone[2] -> consider(0, 2, false) :: else fi }
  // HostsRun::awaitOthers: a launcher that does not come within startTogether.
  :: atomic { !wasRosterSent && first[0] == NONE && isQuiet && !isMember[1] && isLost(1) -> consider(0, 1, false) }
  :: atomic { !wasRosterSent && first[0] == NONE && isQuiet && !isMember[2] && isLost(2) -> consider(0, 2, false) }
  // supervise: a rank of this launcher fails, because another one has or by itself.
  :: atomic { isTraining[0] && mayEcho[0] -> mayEcho[0] = false; isTraining[0] = false; consider(0, 0, true) }
  :: atomic { isTraining[0] && hasFailed(0) ->
       isTraining[0] = false; consider(0, 0, false) }
  :: atomic { pollNow(0) -> polls[0]++ }
  // Launchers::decide
  :: atomic { isDecided(0) && !isDecisionSent ->
       isDecisionSent = true; isTraining[0] = false;
#ifdef MUTANT_ABSENCE_NOT_TOLD
       if :: !wasRosterSent && !isMember[first[0]] && isLost(first[0]) -> goto untold :: else fi;
#endif
       tell(1, Failure, first[0]); tell(2, Failure, first[0]);
untold:
       skip }
  // HostsRun::awaitOthers: no rank has begun; launchers that come later are told before this process ends.
  :: atomic { isDecisionSent && !wasRosterSent &&
              (isMember[1] || isMissed[1] || (isQuiet && isLost(1))) &&
              (isMember[2] || isMissed[2] || (isQuiet && isLost(2))) ->
       isReporter[0] = true; end(0, first[0]); goto over }
  // Launchers::finishReport: all ranks have stopped.
  :: atomic { isDecisionSent && wasRosterSent && !hasLeft &&
              (hasSettled[1] || isDone[1] || isMissed[1]) && (hasSettled[2] || isDone[2] || isMissed[2]) ->
       isReporter[0] = true;
#ifndef MUTANT_NO_REPORT
       tell(1, Report, first[0]); tell(2, Report, first[0]);
#endif
       end(0, first[0]); goto over }
  // Launchers::leave, and the end, which waits for others for a while.
  :: atomic { isTraining[0] && areAllTrained && !hasLeft && !isDecisionSent && !hasFailed(0) ->
       hasLeft = true; isTraining[0] = false; tell(1, Done, 0); tell(2, Done, 0) }
  :: atomic { hasLeft -> end(0, SUCCESS); goto over }
  od;
over:
  skip
}

proctype Client(byte own) provided (isAlive[own]) {
  bool hasRoster, isServerDone, hasSettled, hasLeft, echo;
  byte about;
  atomic { answer(Join, 0, false) }; // ControlClient
  do
  :: atomic { down[own]?Hello(about, echo) }
  :: atomic { down[own]?Refusal(about, echo) -> isReporter[own] = true; end(own, REFUSED); goto over }
  :: atomic { down[own]?Roster(about, echo) -> hasRoster = true; answer(Contribution, 0, false) }
  :: atomic { down[own]?Gathered(about, echo) ->
       if
#ifndef MUTANT_DATA_NOT_COMPARED
       :: about != NONE -> consider(own, about, false)
#endif
       :: else -> isTraining[own] = !isDecided(own)
       fi;
       about = 0 }
  :: atomic { down[own]?Failure(about, echo) -> consider(own, about, false) }
  :: atomic { down[own]?Done(about, echo) -> isServerDone = true }
  :: atomic { down[own]?Report(about, echo) -> if :: !hasLeft -> end(own, about); goto over :: else fi }
  // Launchers::miss
  :: atomic { isServerLost(own) && empty(down[own]) && !isServerMissed[own] ->
       isServerMissed[own] = true;
       if
       :: !isServerDone -> consider(own, 0, false)
       :: else
       fi }
  // supervise and Launchers::report
  :: atomic { isTraining[own] && mayEcho[own] ->
       mayEcho[own] = false; isTraining[own] = false; consider(own, own, true); answer(Failure, own, true) }
  :: atomic { isTraining[own] && hasFailed(own) ->
       isTraining[own] = false; consider(own, own, false); answer(Failure, own, false) }
  :: atomic { pollNow(own) -> polls[own]++ }
  // HostsRun::awaitOthers: no rank has begun, so each process prints what it has heard.
  :: atomic { isDecided(own) && !hasRoster -> isReporter[own] = true; end(own, first[own]); goto over }
  // Launchers::settle
  :: atomic { isDecided(own) && hasRoster && !hasSettled && !hasLeft ->
       hasSettled = true; isTraining[own] = false; answer(Settled, 0, false) }
  // Launchers::finishReport without a report from the first launcher, and Launchers::isReporter
  :: atomic { hasSettled &&
#ifndef MUTANT_WAIT_FOR_THE_DEAD
              (isServerMissed[own] || (isServerDone && empty(down[own])))
#else
              false
#endif
       ->
#ifndef MUTANT_ONLY_THE_LOST_ARE_REPLACED
       isReporter[own] = isServerDone || own == heir;
#else
       isReporter[own] = !isServerDone && own == heir;
#endif
       end(own, first[own]); goto over }
  // Launchers::leave, and the end, which waits for others for a while.
  :: atomic { isTraining[own] && areAllTrained && !hasLeft && !hasSettled && !isDecided(own) && !hasFailed(own) ->
       hasLeft = true; isTraining[own] = false; answer(Done, 0, false) }
  :: atomic { hasLeft -> end(own, SUCCESS); goto over }
  od;
over:
  skip
}

// The bytes of a connection that are under way when the network ends it arrive or not.
inline drop(at) {
  do
  :: nempty(up[at]) -> up[at]?_, _, _
  :: empty(up[at]) -> break
  od;
  do
  :: nempty(down[at]) -> down[at]?_, _, _
  :: empty(down[at]) -> break
  od
}

inline die(at) {
  isAlive[at] = false; isTraining[at] = false; mayEcho[at] = false
}

// Ranks that talk with the lost ones may fail as well. After the last step they do not talk.
inline spread() {
  each = 0;
  do
  :: each < LAUNCHERS ->
     mayEcho[each] = isTraining[each] && each != culprit && !areAllTrained;
     each++
  :: else -> break
  od
}

// Chooses the fault, and lets it happen at any moment.
active proctype World() {
  byte each;
  d_step {
    each = 0;
    do
    :: each < LAUNCHERS ->
       isAlive[each] = true; isConnected[each] = true; said[each] = NONE; first[each] = NONE; host[each] = each; each++
    :: else -> break
    od
  }
  atomic {
    if
    :: skip
    :: host[1] = 0
    :: host[2] = 1
    fi;
    if
    :: fault = NoFault
    :: fault = RankFails
    :: fault = LauncherDies
    :: fault = HostDies
    :: fault = LinkIsCut
    :: fault = OtherPlan
    :: fault = OtherData
    fi;
    if
    :: fault == NoFault -> skip
    :: fault != NoFault && fault != LinkIsCut && fault != OtherPlan -> culprit = 0
    :: fault != NoFault && !(fault == LinkIsCut && host[1] == 0) -> culprit = 1
    :: fault != NoFault -> culprit = 2
    fi;
    run Server(); run Client(1); run Client(2)
  }
  do
  :: atomic { fault == RankFails && !hasHappened && isTraining[culprit] ->
       hasHappened = true; spread() }
  :: atomic { fault == LauncherDies && !hasHappened && !hasExited[culprit] ->
       hasHappened = true; spread(); die(culprit) }
  :: atomic { fault == HostDies && !hasHappened ->
       hasHappened = true;
       if :: !hasExited[culprit] -> spread() :: else fi;
       each = 0;
       do
       :: each < LAUNCHERS ->
          if
          :: host[each] == host[culprit] ->
             die(each);
             if :: each > 0 -> if :: drop(each) :: skip fi :: else fi
          :: else
          fi;
          each++
       :: else -> break
       od;
       // The ranks of a host that is down do not answer, and nobody sees an error before the silence is noticed.
       mayEcho[0] = false; mayEcho[1] = false; mayEcho[2] = false }
  :: atomic { fault == LinkIsCut && !hasHappened ->
       hasHappened = true;
       each = 1;
       do
       :: each < LAUNCHERS ->
          if
          :: host[each] == host[culprit] -> isConnected[each] = false; if :: drop(each) :: skip fi
          :: else
          fi;
          each++
       :: else -> break
       od }
  // A second rank fails by itself.
  :: atomic { fault == RankFails && hasHappened && second == NONE && isTraining[(culprit + 1) % LAUNCHERS] &&
              !hasFailed((culprit + 1) % LAUNCHERS) ->
       second = (culprit + 1) % LAUNCHERS; isSecondLate = isDecisionSent && !areAllTrained }
  :: atomic { !areAllTrained && isTraining[0] && isTraining[1] && isTraining[2] && isAlive[0] && isAlive[1] &&
              isAlive[2] && !(fault == RankFails && hasHappened) ->
       assert(fault != OtherPlan && fault != OtherData); // nobody trains with two plans or two data sets
       areAllTrained = true }
  :: timeout -> break
  od;
  skip; // Nothing moves any more: every living launcher has ended, and blames the place of the fault.
  d_step {
    bool isFailed = false;
    byte reporters = 0;
    each = 0;
    do
    :: each < LAUNCHERS ->
       if
       :: isAlive[each] ->
          assert(said[each] != NONE);
          isFailed = isFailed || said[each] != SUCCESS;
          reporters = reporters + isReporter[each];
          if
          :: said[each] == SUCCESS -> assert(fault == NoFault || areAllTrained)
          :: said[each] != SUCCESS && fault == RankFails ->
             assert(said[each] == culprit || (said[each] == second && !isSecondLate))
          :: said[each] != SUCCESS && (fault == LauncherDies || fault == OtherData) -> assert(said[each] == culprit)
          :: said[each] != SUCCESS && fault == HostDies -> assert(host[said[each]] == host[culprit])
          :: said[each] != SUCCESS && fault == OtherPlan ->
             assert(said[each] == culprit || (said[each] == REFUSED && each == culprit))
          :: said[each] != SUCCESS && fault == LinkIsCut ->
             assert(host[said[each]] == (host[each] == host[culprit] -> 0 : host[culprit]))
          :: else -> assert(said[each] == SUCCESS)
          fi
       :: else
       fi;
       each++
    :: else -> break
    od;
    // After the last step, the launcher that reports for a lost first one may have completed; the exit code remains.
    assert(!isFailed || reporters > 0 || (areAllTrained && (!isAlive[0] || fault == LinkIsCut)));
    // One error for the user, unless hosts were separated, no rank had begun, or all had trained.
    assert(reporters < 2 || fault == LinkIsCut || !hasBegun || areAllTrained)
  }
}
