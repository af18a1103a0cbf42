package weir.hadoop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclEntryScope;
import org.apache.hadoop.fs.permission.AclEntryType;
import org.apache.hadoop.fs.permission.FsAction;

/**
 * Access control lists: between Hadoop's entries and the bytes of the extended attributes that
 * Linux keeps them in (version 2: per entry tag u16, permissions u16, number u32, little-endian).
 */
final class Acls {
  static final String ACCESS = "system.posix_acl_access";
  static final String DEFAULT = "system.posix_acl_default";
  private static final int VERSION = 2;
  private static final int USER_OWNER = 1;
  private static final int USER = 2;
  private static final int GROUP_OWNER = 4;
  private static final int GROUP = 8;
  private static final int MASK = 16;
  private static final int OTHER = 32;

  private Acls() {
  }

  /** The entries of a list. */
  static List<AclEntry> decode(byte[] bytes, AclEntryScope scope) throws IOException {
    ByteBuffer from = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    if (bytes.length < 4 || (bytes.length - 4) % 8 != 0 || from.getInt() != VERSION) {
      throw new IOException("an access control list of the cluster is malformed");
    }
    List<AclEntry> entries = new ArrayList<>();
    while (from.hasRemaining()) {
      int tag = from.getShort();
      AclEntry.Builder entry = new AclEntry.Builder().setScope(scope)
          .setPermission(FsAction.values()[from.getShort() & 7]);
      int number = from.getInt();
      switch (tag) {
        case USER_OWNER:
          entry.setType(AclEntryType.USER);
          break;
        case USER:
          entry.setType(AclEntryType.USER).setName(Names.user(number));
          break;
        case GROUP_OWNER:
          entry.setType(AclEntryType.GROUP);
          break;
        case GROUP:
          entry.setType(AclEntryType.GROUP).setName(Names.group(number));
          break;
        case MASK:
          entry.setType(AclEntryType.MASK);
          break;
        case OTHER:
          entry.setType(AclEntryType.OTHER);
          break;
        default:
          throw new IOException("an access control list has an entry of kind " + tag);
      }
      entries.add(entry.build());
    }
    return entries;
  }

  /** The bytes of a list of one scope; its mask is made if it needs one and has none. */
  static byte[] encode(List<AclEntry> list) throws IOException {
    List<long[]> rows = new ArrayList<>();
    boolean named = false;
    boolean masked = false;
    int union = 0;
    for (AclEntry entry : list) {
      int tag = tag(entry);
      boolean isUser = entry.getType() == AclEntryType.USER;
      long number = entry.getName() == null ? 0xffffffffL
          : isUser ? Names.userNumber(entry.getName()) : Names.groupNumber(entry.getName());
      rows.add(new long[] {tag, entry.getPermission().ordinal(), number});
      named |= entry.getName() != null;
      masked |= tag == MASK;
      union |= tag == USER || tag == GROUP || tag == GROUP_OWNER
          ? entry.getPermission().ordinal() : 0;
    }
    if (named && !masked) {
      rows.add(new long[] {MASK, union, 0xffffffffL});
    }
    rows.sort(Comparator.<long[]>comparingLong(row -> row[0]).thenComparingLong(row -> row[2]));
    ByteBuffer out = ByteBuffer.allocate(4 + 8 * rows.size()).order(ByteOrder.LITTLE_ENDIAN);
    out.putInt(VERSION);
    for (long[] row : rows) {
      out.putShort((short) row[0]).putShort((short) row[1]).putInt((int) row[2]);
    }
    return out.array();
  }

  private static int tag(AclEntry entry) {
    boolean named = entry.getName() != null;
    switch (entry.getType()) {
      case USER:
        return named ? USER : USER_OWNER;
      case GROUP:
        return named ? GROUP : GROUP_OWNER;
      case MASK:
        return MASK;
      default:
        return OTHER;
    }
  }

  /** Whether two entries are about the same. */
  static boolean same(AclEntry a, AclEntry b) {
    return a.getScope() == b.getScope() && a.getType() == b.getType()
        && Objects.equals(a.getName(), b.getName());
  }
}
